"""Every metric of the mesh: names, units, labels and meaning, in one table. docs/metrics.md is made of it.

To add one: count natively (or where the thing happens anyway), give the reading to `host.introspection` with `counts`,
`gauges`, `times` or `series`, add a row here, and run `make metrics-docs`. A reading without a row reaches `snavio
status` and no exporter, and a test says so.

Never names a label whose values strangers choose without a bound.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from snavio.domain.verdict import Verdict
from snavio.observe.metric import Metric, MetricKind

REASONS: Final = tuple(verdict.reason for verdict in Verdict if verdict is not Verdict.UNDECIDED)


def _counter(name: str, unit: str, text: str, *, reads: str = "", **more: Any) -> Metric:
    return Metric(name, MetricKind.COUNTER, unit, text, reads=reads, **_starred(reads, more))


def _gauge(name: str, unit: str, text: str, *, reads: str = "", **more: Any) -> Metric:
    return Metric(name, MetricKind.GAUGE, unit, text, reads=reads, **_starred(reads, more))


def _times(name: str, text: str, *, reads: str, by: tuple[str, ...] = ()) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, "s", text, reads=reads, by=by)


def _by(services: str, *metrics: Metric) -> tuple[Metric, ...]:
    """The metrics of these services, where a row does not say it itself."""
    return tuple(each if each.by else replace(each, by=tuple(services.split())) for each in metrics)


def _starred(reads: str, more: dict[str, Any]) -> dict[str, Any]:
    """A star's label comes first, then those in the reading's own name, then the fixed ones."""
    star = more.get("star", "")
    fixed = tuple(dict.fromkeys(label for label, _ in more.get("fixed", {}).values()))
    labels = ((star,) if star else ()) + tuple(more.pop("labels", ())) + fixed
    assert ("*" in reads) == bool(star), reads
    return {**more, "labels": labels}


_CACHE: Final = {"shield": ("cache", "keys"), "fast": ("cache", "directory")}

# -- commands ------------------------------------------------------------------------------------------------------
COMMANDS: Final = _by(
    "shield fast slow",
    _counter(
        "snavio.route.commands_total",
        "{command}",
        "Commands by target, name and what became of them, counted by the one service that decided each. Names that "
        "no route has, and routes beyond the bound of the table, are `other`.",
        labels=("target", "command", "outcome"),
    ),
    _counter(
        "snavio.source.commands_total",
        "{command}",
        "Commands by tenant, source and what became of them, counted by the one service that decided each. Sources "
        "beyond the bound of the table are `other`.",
        labels=("tenant", "source", "outcome"),
    ),
    _counter(
        "snavio.commands_total",
        "{command}",
        "Commands by outcome, counted by the one service that decided each: the sum over a fleet counts none twice.",
        labels=("outcome",),
        known=REASONS,
    ),
    _counter(
        "snavio.commands.folded_total",
        "{command}",
        "Commands that are counted under `other`, because a table was full or no route has their names.",
        labels=("table",),
        known=("routes", "sources"),
    ),
    _counter(
        "snavio.shield.answers_total",
        "{command}",
        "Verdicts as producers received them, by reason.",
        reads="outcome.*",
        by=("shield",),
        star="reason",
        known=REASONS,
    ),
    _times(
        "snavio.shield.answer_seconds",
        "Time from a command's arrival at Shield to its verdict.",
        reads="admit_to_verdict",
        by=("shield",),
    ),
)

# -- Shield --------------------------------------------------------------------------------------------------------
SHIELD: Final = _by(
    "shield",
    _counter(
        "snavio.admission.accepted_total",
        "{command}",
        "Commands that Shield has let in.",
        reads="admission.accepted",
    ),
    _counter(
        "snavio.admission.frames_refused_total",
        "{batch}",
        "Batches that were refused before their commands were looked at.",
        reads="admission.frames_refused",
    ),
    _counter(
        "snavio.admission.refused_total",
        "{command}",
        "Commands that Shield has refused, by reason; `hmac-mismatch` is a failure of the signature.",
        reads="admission.*",
        star="reason",
    ),
    _gauge(
        "snavio.nonces.live",
        "{nonce}",
        "Signatures that are remembered, so that none is accepted twice.",
        reads="admission.nonces_live",
    ),
    _counter(
        "snavio.admission.refused_out_of_date_total",
        "{command}",
        "Commands refused because keys or suspensions were out of date.",
        reads="freshness.refused_out_of_date",
    ),
    _counter(
        "snavio.keys.use_dropped_total",
        "{command}",
        "Uses of keys that Signer was not told of, because it was away for too long.",
        reads="freshness.key_use_dropped",
    ),
    _gauge(
        "snavio.suspensions.bound_seconds",
        "s",
        "Age of the suspensions at which Shield lets nothing in any more.",
        reads="directory.bound_s",
    ),
)

# -- caches, dedupe and snapshots, as the catalogue names them --------------------------------------------------------
CATALOGUE: Final = (
    *(
        _counter(
            f"Snavio.Cache.Usage.{phase}",
            "{command}",
            f"Commands that relied on {phase.lower()} entries, by cache: keys at Shield, the directory at Fast.",
            reads=f"Snavio.Cache.Usage.{phase}",
            by=("shield", "fast"),
            fixed=_CACHE,
        )
        for phase in ("Fresh", "Stale", "Expired")
    ),
    *(
        each
        for cache, what, by in (
            ("ACL", "rights", ("fast",)),
            ("Routing", "routes", ("fast",)),
            ("HMAC", "keys", ("shield",)),
        )
        for each in (
            _counter(
                f"Snavio.Cache.{cache}.Usage.Stale",
                "{command}",
                f"Commands that relied on stale {what}.",
                reads=f"Snavio.Cache.{cache}.Usage.Stale",
                by=by,
            ),
            _times(
                f"Snavio.Cache.{cache}.RefreshDuration",
                f"Time that a refresh of {what} took.",
                reads=f"Snavio.Cache.{cache}.RefreshDuration",
                by=by,
            ),
            _gauge(
                f"Snavio.Cache.{cache}.StaleWindowSeconds",
                "s",
                f"Seconds since {what} became stale; 0 while they are fresh.",
                reads=f"Snavio.Cache.{cache}.StaleWindowSeconds",
                by=by,
            ),
        )
    ),
    _counter(
        "Snavio.Cache.SnapshotLoadFailure",
        "{snapshot}",
        "Snapshots that were not used at a start, by reason; `absent` is none yet, and no failure.",
        reads="Snavio.Cache.SnapshotLoadFailure.*",
        by=("shield", "fast"),
        star="reason",
        known=("absent",),
    ),
    _counter(
        "Snavio.Cache.SnapshotLoaded",
        "{snapshot}",
        "Snapshots that a service has started from.",
        reads="Snavio.Cache.SnapshotLoaded",
        by=("shield", "fast"),
        known=("",),
    ),
    _counter(
        "Snavio.Dedup.StrictModeUsage",
        "{command}",
        "Commands of strict routes, counted where they were decided.",
        reads="Snavio.Dedup.StrictModeUsage",
        by=("fast", "slow"),
    ),
    _counter(
        "Snavio.Dedup.DuplicatesPrevented",
        "{command}",
        "Duplicates that Fast or Slow has answered instead of delivering them again.",
        reads="Snavio.Dedup.DuplicatesPrevented",
        by=("fast", "slow"),
    ),
    _counter(
        "Snavio.Dedup.Escalations",
        "{command}",
        "Strict commands that Fast has left to Slow, as Fast counts them when it sends and Slow when it answers.",
        reads="Snavio.Dedup.Escalations",
        by=("fast", "slow"),
        fixed={"fast": ("at", "fast"), "slow": ("at", "slow")},
    ),
    _times(
        "Snavio.Dedup.SlowPathLatency",
        "Time that a strict command took on Slow.",
        reads="Snavio.Dedup.SlowPathLatency",
        by=("slow",),
    ),
    _counter(
        "snavio.dedup.claims_left_total",
        "{claim}",
        "Claims that could not be settled and end with their lease.",
        reads="Snavio.Dedup.claims_left",
        by=("slow",),
        known=("",),
    ),
    _counter(
        "Snavio.Snapshot.Generated",
        "{snapshot}",
        "Snapshots written.",
        reads="Snavio.Snapshot.Generated",
        by=("registry", "signer"),
        known=("",),
    ),
    _counter(
        "Snavio.Snapshot.Failed",
        "{snapshot}",
        "Rounds that published no snapshot, by reason.",
        reads="Snavio.Snapshot.Failed.*",
        by=("registry", "signer"),
        star="reason",
        known=("too-large",),
    ),
    _counter(
        "Snavio.Snapshot.Superseded",
        "{snapshot}",
        "Times that the newest snapshot was ahead of its source, which came from a backup.",
        reads="Snavio.Snapshot.Superseded",
        by=("registry", "signer"),
        known=("",),
    ),
    _gauge(
        "Snavio.Snapshot.SizeBytes",
        "By",
        "Size of the last snapshot.",
        reads="Snavio.Snapshot.SizeBytes",
        by=("registry", "signer"),
    ),
    _gauge(
        "Snavio.Snapshot.WriteDuration",
        "s",
        "Time that writing the last snapshot took.",
        reads="Snavio.Snapshot.WriteDuration",
        by=("registry", "signer"),
    ),
)

# -- Fast and Slow ---------------------------------------------------------------------------------------------------
DISPATCH: Final = _by(
    "fast",
    _counter(
        "snavio.dispatch.sent_total",
        "{command}",
        "Commands that Fast has sent to a target queue from memory.",
        reads="dispatch.dispatched",
    ),
    _counter(
        "snavio.dispatch.unreadable_total",
        "{command}",
        "Commands that Fast could not read.",
        reads="dispatch.refused",
    ),
    _counter(
        "snavio.dispatch.escalated_total",
        "{command}",
        "Commands that Fast has left to Slow, by reason.",
        reads="dispatch.escalated.*",
        star="reason",
    ),
    _counter(
        "snavio.dispatch.misrouted_total",
        "{command}",
        "Commands that Fast has refused because no route has their names.",
        reads="dispatch.route_missing",
    ),
    _counter(
        "snavio.dispatch.unknown_saturated_total",
        "{command}",
        "Commands of unknown routes that Fast has refused because their source asks for too many.",
        reads="dispatch.unknown_saturated",
    ),
    _counter(
        "snavio.fairness.warm_bans_total",
        "{ban}",
        "Bans from the warm path that began here.",
        reads="dispatch.warm_bans",
    ),
    *(
        _gauge(f"snavio.dispatch.{name}", unit, text, reads=f"dispatch.{name}")
        for name, unit, text in (
            ("routes", "{route}", "Routes in memory."),
            ("acls", "{right}", "Rights in memory."),
            ("bans", "{ban}", "Bans in force."),
            ("unknown_routes", "{route}", "Names that are known to have no route."),
            (
                "remembered_deliveries",
                "{command}",
                "Delivered commands of strict routes that are remembered.",
            ),
            ("counted_sources", "{source}", "Pairs of source and route that are counted for fairness."),
        )
    ),
    _counter(
        "snavio.grants.permits_total",
        "{permit}",
        "Permits that Fast was granted and keeps.",
        reads="grants.permits",
        by=("fast", "slow"),
        fixed={"fast": ("at", "fast"), "slow": ("at", "slow")},
        known=("",),
    ),
    _counter(
        "snavio.grants.permits_unneeded_total",
        "{permit}",
        "Permits that came when nothing wanted them any more: wasted.",
        reads="grants.permits_unneeded",
        known=("",),
    ),
    _counter(
        "snavio.grants.permits_returned_total",
        "{permit}",
        "Permits that Fast has returned unused.",
        reads="grants.permits_returned",
        known=("",),
    ),
    _counter(
        "snavio.grants.returned_total",
        "{permit}",
        "Unused permits that Slow has taken back.",
        reads="grants.returned",
        by=("slow",),
        known=("",),
    ),
    _counter(
        "snavio.grants.answers_total",
        "{wish}",
        "Answers to wishes for permits, by state.",
        reads="grants.state.*",
        star="state",
    ),
    _counter(
        "snavio.grants.calls_total",
        "{call}",
        "Calls for permits, and what came of them.",
        reads="grants.*",
        by=("fast", "slow"),
        star="what",
        known=("calls",),
    ),
    _counter(
        "snavio.limits.permits_total",
        "{permit}",
        "Permits at Slow by their fate: taken, returned, lost, refused and the like.",
        reads="limits.*",
        by=("slow",),
        star="fate",
        known=("taken", "returned", "lost", "refused"),
    ),
    _counter(
        "snavio.bans.reports_total",
        "{ban}",
        "Bans that were reported, and what became of the reports.",
        reads="bans.*",
        by=("fast", "slow"),
        star="what",
        fixed={"fast": ("at", "fast"), "slow": ("at", "slow")},
    ),
    _counter(
        "snavio.escalations.saturated_total",
        "{command}",
        "Commands refused because the way to Slow was full.",
        reads="escalations.saturated",
    ),
    _gauge(
        "snavio.escalations.waiting",
        "{command}",
        "Commands that wait for Slow.",
        reads="escalations.waiting",
    ),
    _gauge(
        "snavio.escalations.sources",
        "{source}",
        "Sources whose commands wait for Slow.",
        reads="escalations.sources",
    ),
    _gauge(
        "snavio.arbitration.waiting",
        "1",
        "Commands, and queues of them, that wait at Slow.",
        reads="waiting.*",
        by=("slow",),
        star="what",
    ),
)

# -- the mailbox -------------------------------------------------------------------------------------------------------
_SHARD: Final = ("topic", "shard")
MAILBOX: Final = _by(
    "mailbox",
    _gauge("queue_depth", "{message}", "Messages that are ready, by topic and shard.", labels=_SHARD),
    _gauge("inflight", "{message}", "Messages under a lease, by topic and shard.", labels=_SHARD),
    _gauge("saturation", "1", "Part of a shard's capacity that is in use, from 0 to 1.", labels=_SHARD),
    _gauge("reorder_depth_max", "{message}", "Most messages that stood out of order.", labels=_SHARD),
    _gauge("dlq_depth", "{message}", "Messages in the dead-letter queue.", labels=("topic",)),
    _gauge("canceled", "{message}", "Canceled messages that are kept.", labels=("topic",)),
    _gauge("delivered_retained", "{message}", "Delivered messages that are kept.", labels=("topic",)),
    _gauge("oldest_age_seconds", "s", "Age of the oldest message that is ready.", labels=("topic",)),
    _gauge("standstill", "1", "1 while a topic stands still, by reason.", labels=("topic", "reason")),
    _counter("dlq_total", "{message}", "Messages that died, by reason.", labels=("topic", "reason")),
    _counter(
        "pruned_total", "{message}", "Messages removed by retention, by cause.", labels=("topic", "cause")
    ),
    _counter("lost_total", "{message}", "Messages that could not be read any more.", labels=("topic",)),
    _gauge(
        "snavio.topic_rules.rules",
        "{rule}",
        "Rules for topics that tenants have written and the mailbox follows.",
        reads="topic_rules.rules",
    ),
    _gauge(
        "snavio.topic_rules.age_seconds",
        "s",
        "Time since Registry last told of them.",
        reads="topic_rules.age_s",
    ),
    _counter(
        "rejected_total",
        "{message}",
        "Messages and calls that the mailbox has refused, by reason.",
        reads="rejected_total",
        labels=("reason",),
    ),
    *(
        _gauge(f"telemetry_queue_{name}", unit, text, reads=f"telemetry_queue_{name}", labels=("tenant",))
        for name, unit, text in (
            ("age_seconds", "s", "Age of the oldest envelope in a tenant's telemetry queue."),
            ("delayed", "{envelope}", "Envelopes of it that wait for another attempt."),
            ("sent", "{envelope}", "Envelopes that it has got since the mailbox started."),
            ("deleted", "{envelope}", "Envelopes of it that were acknowledged since then."),
            ("dlq_depth", "{envelope}", "Envelopes of it that died."),
        )
    ),
    _gauge("inflight_total", "{message}", "Messages under a lease, of all topics.", reads="inflight_total"),
    _gauge(
        "inflight_saturation",
        "1",
        "Part of the ceiling for leases that is in use.",
        reads="inflight_saturation",
    ),
    _gauge(
        "dlq_ephemeral", "1", "1 where the dead-letter queue ends with the process.", reads="dlq_ephemeral"
    ),
    *(
        _gauge(name, unit, text, reads=name, labels=("topic", "state"))
        for name, unit, text in (
            ("retention_seconds", "s", "How long messages are kept, by state; without topic, of all others."),
            ("retention_messages", "{message}", "How many are kept, by state; without topic, of all others."),
        )
    ),
    _gauge(
        "retention_visibilities",
        "1",
        "Times that a lease can be made longer.",
        reads="retention_visibilities",
        labels=("topic",),
    ),
    _gauge("topics", "{topic}", "Topics that are known.", reads="topics"),
    _gauge("timers", "1", "Moments at which messages become ready or leases end.", reads="timers"),
    _gauge("store_bytes", "By", "Size of the store.", reads="store_bytes"),
    _gauge("replay_keys", "{key}", "Idempotency keys that are remembered.", reads="replay_keys"),
    _gauge(
        "replay_keys_capacity",
        "{key}",
        "Idempotency keys that can be remembered.",
        reads="replay_keys_capacity",
    ),
    _gauge("read_threads", "{thread}", "Threads that read the store.", reads="read_threads"),
    _gauge("reads_hanging", "{thread}", "Reads of the store that do not end.", reads="reads_hanging"),
    _counter(
        "reads_hung_total", "{thread}", "Reads of the store that were given up.", reads="reads_hung_total"
    ),
    *(
        _times(f"{name}_latency_seconds", text, reads=name)
        for name, text in (
            ("enqueue", "Time that a send took."),
            ("dequeue", "Time that a receive took, without the wait for a message."),
            ("ack", "Time that an acknowledgement took."),
            ("commit", "Time that a commit of the store took."),
        )
    ),
    _counter(
        "snavio.capability.denied_total",
        "{call}",
        "Calls refused because of their capability, by reason.",
        reads="capability.denied.*",
        star="reason",
    ),
    _gauge(
        "snavio.capability.known",
        "1",
        "What the mailbox remembers of capabilities.",
        reads="capability.*",
        star="what",
    ),
)

# -- Relay, the gateway, Registry, Signer ------------------------------------------------------------------------------
RELAY: Final = _by(
    "relay",
    *(
        _counter(f"snavio.relay.{name}_total", "1", text, reads=f"{name}.*", star="what")
        for name, text in (
            ("intake", "Journal pages and events that Relay has taken, and what was missing."),
            ("cutting", "Pages cut by tenant, and what could not be."),
            ("sealing", "Envelopes and their events, sealed by tenant."),
            ("export", "Events and files archived, and failures."),
            ("compaction", "Files of the archive that were merged, and failures."),
            (
                "retention",
                "Hours, files, events and bytes of the archive that were deleted because of their age.",
            ),
            ("streams", "Reads of tenant streams, and what retention removed."),
            ("queues", "Envelopes sent to tenants' queues, and what became of them."),
        )
    ),
    _gauge(
        "snavio.outbox.waiting",
        "1",
        "Events, pages and bytes in the outbox that are not archived.",
        reads="outbox.*",
        star="what",
    ),
    _gauge(
        "snavio.relay.queues_paused",
        "{queue}",
        "Tenants' queues that take nothing now.",
        reads="queues.paused",
    ),
    _gauge("snavio.relay.parked", "{tenant}", "Tenants whose events wait for a key.", reads="sealing.parked"),
    _gauge(
        "snavio.relay.tails",
        "1",
        "Newest envelopes in memory: tenants, bytes, and readers that wait.",
        reads="stream_tails.*",
        star="what",
    ),
    _counter(
        "sse_relay_skip_total",
        "{tenant}",
        "Rounds in which a tenant's events were left, by reason.",
        reads="sse_relay_skip_total",
        labels=("reason",),
    ),
    _counter(
        "sse_publisher_sign_failures_total",
        "{envelope}",
        "Envelopes that could not be signed or published, by reason.",
        reads="sse_publisher_sign_failures_total",
        labels=("reason",),
    ),
    _gauge(
        "sse_active_streams",
        "{stream}",
        "Event streams that are open.",
        reads="sse_active_streams",
        by=("gateway",),
    ),
    _counter(
        "sse_envelope_verification_failures_total",
        "{envelope}",
        "Envelopes that the gateway refused to pass on.",
        reads="sse_envelope_verification_failures_total",
        by=("gateway",),
        labels=("outcome",),
        known=("bad_signature", "bad_nonce", "decode_error"),
    ),
    _counter(
        "snavio.streams.ended_total",
        "{stream}",
        "Event streams that ended, by reason.",
        reads="streams_ended.*",
        by=("gateway",),
        star="reason",
    ),
    _gauge(
        "snavio.gateway.feeds",
        "1",
        "Tenants whose events are followed.",
        reads="feeds.*",
        by=("gateway",),
        star="what",
    ),
    _gauge(
        "snavio.gateway.tenants",
        "{tenant}",
        "Tenants that the gateway knows.",
        reads="tenants.known",
        by=("gateway",),
    ),
    _counter(
        "snavio.bans.proposals_total",
        "{ban}",
        "Bans that were proposed to Registry, and what became of them.",
        reads="proposal.*",
        by=("registry",),
        star="what",
    ),
    _gauge(
        "snavio.keys.rollout",
        "1",
        "Keys on their way to every Shield, and seconds of the longest.",
        reads="rotation.*",
        by=("signer",),
        star="what",
    ),
)

# -- health of routes, alerts, and requests that leave the mesh --------------------------------------------------------
ALERTS: Final = (
    _gauge(
        "route_queues",
        "{queue}",
        "Queues of routes by health, as Registry last judged them.",
        reads="route_queues",
        labels=("health",),
        by=("registry",),
    ),
    _counter(
        "snavio.routes.looks_total",
        "1",
        "Looks at queues of routes, those that failed, and changes of a queue's health.",
        reads="routes.*",
        star="what",
        by=("registry",),
    ),
    *(
        _counter(name, unit, text, reads=name, labels=labels, by=("relay",))
        for name, unit, labels, text in (
            ("alert_occurrences_total", "{event}", ("event",), "Occurrences that are alerts, by event."),
            ("alert_updates_total", "{message}", (), "Messages that were made of them."),
            ("alerts_unrouted_total", "{message}", ("event",), "Messages that no channel takes, by event."),
            ("alerts_delivered_total", "{message}", ("channel",), "Messages delivered, by kind of channel."),
            ("alert_attempts_failed_total", "{attempt}", ("reason",), "Attempts that failed, by reason."),
            ("alert_deliveries_given_up_total", "{message}", (), "Messages given up after a day."),
            ("egress_requests_total", "{request}", ("outcome",), "Requests that left the mesh, by outcome."),
        )
    ),
    _gauge(
        "snavio.alerts.stored",
        "1",
        "What the alert store holds: messages, groups, those that wait, and whether it is full.",
        reads="alerts.*",
        star="what",
        by=("relay",),
    ),
)

# -- every service -----------------------------------------------------------------------------------------------------
PROCESS: Final = (
    _gauge(
        "snavio.build_info",
        "1",
        "Always 1: which service, instance and version this is.",
        labels=("service", "instance", "version"),
    ),
    _gauge("snavio.ready", "1", "1 while the service takes work, as /readyz tells it.", labels=("part",)),
    _gauge(
        "snavio.process.resident_bytes",
        "By",
        "Resident memory.",
        reads="process.resident_bytes",
    ),
    _counter("snavio.process.cpu_seconds_total", "s", "CPU time that the process has used."),
    _gauge("snavio.process.start_time_seconds", "s", "When the process started, since 1970."),
    _counter(
        "snavio.calls.refused_total",
        "{call}",
        "Calls refused before they reached a handler, by reason; `not-allowed` is a caller without the right.",
        reads="calls.refused.*",
        star="reason",
        known=("not-allowed",),
    ),
    _counter(
        "snavio.certificates.refused_total",
        "{call}",
        "Calls and batches refused because of their certificate, by reason.",
        reads="certificate_refused.*",
        star="reason",
    ),
    _gauge(
        "snavio.certificate.expires_seconds",
        "s",
        "Time left of the service's own certificate.",
        reads="certificate.expires_in_s",
    ),
    _gauge(
        "snavio.certificate.lifetime_seconds",
        "s",
        "Whole life of the service's own certificate; it is renewed after two thirds of it.",
        reads="certificate.lifetime_s",
    ),
    _gauge(
        "snavio.denylist.age_seconds",
        "s",
        "Age of the list of revoked certificates.",
        reads="denylist.age_s",
    ),
    _gauge(
        "snavio.directory.version",
        "1",
        "Version of the directory in memory.",
        reads="directory.version",
        by=("shield", "fast"),
    ),
    _gauge(
        "snavio.cache.age_seconds",
        "s",
        "Time since what is in memory was read from its authority, by cache: keys, suspensions, directory.",
        reads="cache_age.*",
        star="cache",
        by=("shield", "fast"),
    ),
    _gauge(
        "snavio.link.connected",
        "1",
        "1 while the stream to the next service is connected.",
        reads="link.*.connected",
        star="to",
    ),
    _gauge(
        "snavio.share.used",
        "1",
        "What is in use of a bound that tenants share.",
        reads="share_used.*",
        star="bound",
    ),
    _gauge(
        "snavio.share.limit",
        "1",
        "The bound.",
        labels=("bound",),
    ),
    _gauge(
        "snavio.share.tenant_used",
        "1",
        "What the largest holders use of a bound, by tenant; a hundred of them at most.",
        labels=("bound", "tenant"),
    ),
    _counter(
        "snavio.share.refused_total",
        "1",
        "Refusals because a bound, or a tenant's share of it, was full.",
        reads="share_refused.*",
        star="bound",
    ),
    _counter(
        "snavio.journal.total",
        "1",
        "Events and pages of the service's journal, those that were dropped, and reconnects to Relay.",
        reads="journal.*",
        star="what",
    ),
    _gauge(
        "snavio.journal.waiting_bytes",
        "By",
        "Bytes of the journal that Relay does not have.",
        reads="journal.waiting_bytes",
    ),
    _gauge(
        "snavio.journal.waiting_events",
        "{event}",
        "Events of the journal that Relay does not have.",
        reads="journal.waiting_rows",
    ),
    _counter("snavio.events_total", "{event}", "Rare events, by name.", reads="events.*", star="event"),
    _counter(
        "background_failures_total",
        "1",
        "Failures of background work, by work; the authority that it asks may be away.",
        reads="background_failures_total",
        labels=("work",),
    ),
    _counter(
        "background_faults_total",
        "1",
        "Those of them that are faults of the program.",
        reads="background_faults_total",
        labels=("work",),
        known=("callback",),
    ),
    _counter(
        "snavio.traces.spans_total",
        "1",
        "Spans by what became of them, and sampled commands beyond the bound of a second.",
        reads="traces.*",
        star="what",
    ),
    _gauge(
        "snavio.explain.recent",
        "1",
        "Blocks of recent commands that are kept to explain them, and their bytes.",
        reads="recent.*",
        by=("shield", "fast", "slow"),
        star="what",
    ),
    _counter(
        "snavio.scrapes_total",
        "1",
        "Answers of the health port, by path and status.",
        reads="health_port.*",
        star="answer",
    ),
)

METRICS: Final = (*COMMANDS, *SHIELD, *CATALOGUE, *DISPATCH, *MAILBOX, *RELAY, *ALERTS, *PROCESS)

ALIASES: Final = {"event.": "events."}
"""Prefixes of readings that mean the same."""

REPEATED: Final = frozenset(
    {
        # Under their public names as well.
        *(f"dispatch.usage.{phase}" for phase in ("fresh", "stale", "expired", "acl.stale", "routing.stale")),
        *("dispatch.strict", "dispatch.duplicates"),
        # With the reason, too.
        "Snavio.Cache.SnapshotLoadFailure",
    }
)
"""MetricReadings that another metric tells already."""
