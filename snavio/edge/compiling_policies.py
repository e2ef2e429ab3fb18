"""Compiles what holds for all routes: secrets, matchers, limits, retention, egress, publishing, logs and traces.

Never keeps anything for ever: `off` for an age that the mailbox needs is ten years, with a warning.
"""

from __future__ import annotations

from snavio.edge.findings import FindingLog, TextPosition, closest_word
from snavio.edge.kinds import MOST_SECONDS, SECOND_NS
from snavio.edge.language import LANGUAGE
from snavio.edge.plan import (
    BackpressurePolicy,
    EdgeObservability,
    EgressRules,
    LogSink,
    MetricsListener,
    PublishPolicy,
    RequestConditions,
    TraceExport,
    TrendPolicy,
    WaitingPolicy,
)
from snavio.edge.reading import ReadBlock, ReadDirective
from snavio.edge.references import EdgeSecret, SecretWindow

_TEN_YEARS_NS = MOST_SECONDS * SECOND_NS


def block_of(parent: ReadBlock | None, key: str, name: str) -> ReadBlock:
    """The block of a directive; an empty one, of which everything is a default, when it is not there."""
    found = parent.inner(key) if parent else None
    return found or ReadBlock(name, parent.at if parent else TextPosition())


def compile_secrets(file: ReadBlock, findings: FindingLog) -> dict[str, EdgeSecret]:
    """The named secrets."""
    found: dict[str, EdgeSecret] = {}
    lines: dict[str, int] = {}
    for each in block_of(file, "secrets", "secrets").all("secret"):
        name, block = each.values[0] if each.values else None, each.block
        if name is None or block is None:
            continue
        if name in found:
            findings.mistake(
                each.at,
                "duplicate-secret",
                f"The secret `{name}` is there twice; the first stands in line {lines[name]}.",
            )
            continue
        lines[name] = each.at.line
        found[name] = _secret(name, block, findings)
    return found


def known_secrets(
    block: ReadBlock, directive: str, secrets: dict[str, EdgeSecret], findings: FindingLog
) -> tuple[str, ...]:
    """The names that `directive` of a block gives, each of them in `secrets`."""
    found: list[str] = []
    for each in block.all(directive):
        name = each.values[0] if each.values else None
        if name is None:
            continue
        if name not in secrets:
            findings.mistake(
                each.places[0],
                "unknown-secret",
                f"`secrets` has no secret `{name}`.",
                closest_word(name, secrets),
            )
        elif name in found:
            findings.mistake(each.at, "duplicate-secret", f"`{directive} {name}` is there twice.")
        else:
            found.append(name)
    return tuple(found)


def _secret(name: str, block: ReadBlock, findings: FindingLog) -> EdgeSecret:
    runtime = bool(block.value("runtime"))
    if block.one("max_versions") and not runtime:
        findings.mistake(block.place("max_versions"), "runtime-missing", "`max_versions` needs `runtime on`.")
    if block.one("value") is None and not runtime:
        findings.mistake(block.at, "value-missing", f"The secret `{name}` needs a `value`.")
    needs_start = block.one("value") is not None and block.one("valid_from") is None
    if needs_start:
        findings.mistake(block.at, "value-missing", f"The secret `{name}` needs a `valid_from`.")
    start, end = block.given("valid_from"), block.given("valid_until")
    if start is not None and end is not None and end <= start:
        findings.mistake(
            block.place("valid_until"),
            "window-reversed",
            f"The secret `{name}` ends before it begins, and is never valid.",
        )
    reference = block.given("value")
    version = SecretWindow(reference, start or 0, end) if reference else None
    return EdgeSecret(name, version, runtime, block.value("max_versions"))


def compile_matchers(file: ReadBlock, findings: FindingLog) -> dict[str, RequestConditions]:
    """The named matchers."""
    found: dict[str, RequestConditions] = {}
    for each in file.all("@"):
        name = each.values[0] if each.values else None
        if name is None:
            continue
        if name in found:
            findings.mistake(each.at, "duplicate-matcher", f"The matcher `@{name}` is there twice.")
            continue
        found[name] = compile_conditions(each.block, findings, each.at)
    return found


def compile_conditions(block: ReadBlock | None, findings: FindingLog, at: TextPosition) -> RequestConditions:
    """The conditions of a block."""
    if block is None or not block.directives:
        findings.mistake(
            at, "matcher-empty", "A matcher without conditions would match everything; give it one."
        )
        return RequestConditions()
    headers = _pairs(block.all("header"), fold=True)
    names = [name for name, _ in headers]
    for each in block.all("header"):
        name = each.values[0].lower() if each.values and each.values[0] else ""
        if names.count(name) > 1 and len({value for key, value in headers if key == name}) > 1:
            findings.mistake(
                each.at,
                "duplicate-header",
                f"The header `{name}` cannot have two values at once; no request would match.",
            )
    return RequestConditions(
        methods=frozenset(block.many("method")),
        hosts=frozenset(block.many("host")),
        headers=frozenset(headers),
        headers_present=frozenset(name.lower() for name in block.many("header_exists")),
        queries=frozenset(_pairs(block.all("query"), fold=False)),
        queries_present=frozenset(block.many("query_exists")),
        networks=frozenset(block.many("remote_ip")),
    )


def _pairs(directives: list[ReadDirective], *, fold: bool) -> list[tuple[str, str]]:
    return [
        (each.values[0].lower() if fold else each.values[0], each.values[1])
        for each in directives
        if len(each.values) == 2 and each.known
    ]


def compile_waiting(file: ReadBlock, findings: FindingLog, *, in_memory: bool) -> WaitingPolicy:
    """Limits and ages of what waits."""
    limits = block_of(file, "queue_limits", "queue_limits")
    queued = block_of(file, "queue_retention", "queue_retention")
    dead = block_of(file, "dlq_retention", "dlq_retention")
    attempts = block_of(file, "attempts_retention", "attempts_retention")
    for block in (queued, dead):
        one = block.one("max_age")
        if one and one.known and one.values and one.values[0] is None:
            findings.warning(
                one.at,
                "ten-years",
                f"`max_age off` of `{block.name}` is ten years; nothing is kept for ever.",
            )
    return WaitingPolicy(
        max_depth=limits.value("max_depth"),
        bury_oldest=limits.value("drop_policy") == "drop_oldest",
        max_age_ns=queued.value("max_age") or _TEN_YEARS_NS,
        prune_interval_ns=queued.value("prune_interval"),
        delivered_max_age_ns=block_of(file, "delivered_retention", "delivered_retention").value("max_age"),
        dead_max_age_ns=dead.value("max_age") or _TEN_YEARS_NS,
        dead_max_depth=dead.value("max_depth"),
        attempts_max_age_ns=attempts.value("max_age"),
        attempts_max_rows=attempts.value("max_rows"),
        in_memory=in_memory,
    )


def compile_egress(defaults: ReadBlock) -> EgressRules:
    """Where deliveries may go."""
    block = block_of(defaults, "egress", "egress")
    return EgressRules(
        allow=block.many("allow"),
        deny=block.many("deny"),
        https_only=block.value("https_only"),
        redirects=block.value("redirects"),
        dns_rebind_protection=block.value("dns_rebind_protection"),
    )


def compile_publishing(defaults: ReadBlock) -> PublishPolicy:
    """Rights to publish."""
    block = block_of(defaults, "publish_policy", "publish_policy")
    return PublishPolicy(
        direct=block.value("direct"),
        managed=block.value("managed"),
        allow_pull_routes=block.value("allow_pull_routes"),
        allow_deliver_routes=block.value("allow_deliver_routes"),
        require_actor=block.value("require_actor"),
        require_request_id=block.value("require_request_id"),
        fail_closed=block.value("fail_closed"),
        actor_allow=block.many("actor_allow"),
        actor_prefix=block.many("actor_prefix"),
    )


def compile_trends(defaults: ReadBlock, findings: FindingLog) -> TrendPolicy:
    """Thresholds of the trend signals."""
    block = block_of(defaults, "trend_signals", "trend_signals")
    rows = [row.key for row in LANGUAGE["trend_signals"].rows if row.arguments[0].kind == "count"]
    window, interval = block.value("window"), block.value("expected_capture_interval")
    if window and interval and interval > window:
        findings.mistake(
            block.place("expected_capture_interval"),
            "window-too-short",
            "`expected_capture_interval` is longer than `window`, which would hold no sample.",
        )
    return TrendPolicy(window, interval, tuple((key, block.value(key)) for key in rows))


def compile_backpressure(defaults: ReadBlock) -> BackpressurePolicy | None:
    """503 before a queue is full; None when it is off."""
    block = block_of(defaults, "adaptive_backpressure", "adaptive_backpressure")
    if not block.value("enabled"):
        return None
    return BackpressurePolicy(
        min_total=block.value("min_total"),
        queued_percent=block.value("queued_percent"),
        ready_lag_ns=block.value("ready_lag"),
        oldest_queued_age_ns=block.value("oldest_queued_age"),
        sustained_growth=block.value("sustained_growth"),
    )


def compile_observability(file: ReadBlock, findings: FindingLog) -> EdgeObservability:
    """Logs, metrics and traces."""
    block = block_of(file, "observability", "observability")
    access = block_of(block, "access_log", "access_log")
    runtime = block_of(block, "runtime_log", "runtime_log")
    metrics, tracing = block.inner("metrics"), block.inner("tracing")
    return EdgeObservability(
        access_log=_sink(access, "info", findings) if access.value("enabled") else None,
        runtime_log=_sink(runtime, runtime.value("level"), findings)
        if runtime.value("level") != "off"
        else None,
        metrics=_metrics(metrics),
        tracing=_tracing(tracing, findings) if tracing and tracing.value("enabled") else None,
    )


def _metrics(block: ReadBlock | None) -> MetricsListener | None:
    if block is None or not block.value("enabled"):
        return None
    return MetricsListener(block.value("listen"), block.value("prefix"))


def _sink(block: ReadBlock, level: str, findings: FindingLog) -> LogSink:
    output, path = block.value("output"), block.given("path")
    if output == "file" and block.one("path") is None:
        findings.mistake(
            block.place("output"), "path-missing", f"`output file` of `{block.name}` needs a `path`."
        )
    if output != "file" and block.one("path") is not None:
        findings.mistake(block.place("path"), "path-unused", f"`path` of `{block.name}` needs `output file`.")
    return LogSink(level, output, path, block.value("format"))


def _tracing(block: ReadBlock, findings: FindingLog) -> TraceExport:
    tls = block.inner("tls")
    retry = block_of(block, "retry", "tracing_retry")
    certificates = tls or ReadBlock("tracing_tls", block.at)
    if block.one("collector") is None:
        findings.mistake(block.at, "value-missing", "`tracing` needs a `collector`.")
    if block.value("insecure") and tls is not None:
        findings.mistake(
            block.place("insecure"),
            "insecure-with-tls",
            "`insecure on` exports without TLS, and there is a `tls`.",
        )
    if (certificates.one("cert_file") is None) != (certificates.one("key_file") is None):
        findings.mistake(
            certificates.at, "tls-incomplete", "`cert_file` and `key_file` of `tracing` belong together."
        )
    headers = _pairs(block.all("header"), fold=False)
    seen: set[str] = set()
    for each in block.all("header"):
        name = each.values[0].lower() if each.values and each.values[0] else ""
        if name and name in seen:
            findings.mistake(each.at, "duplicate-header", f"The header `{name}` of `tracing` is there twice.")
        seen.add(name)
    return TraceExport(
        collector=block.given("collector") or "",
        url_path=block.given("url_path"),
        timeout_ns=block.value("timeout"),
        gzip=block.value("compression") == "gzip",
        insecure=bool(block.value("insecure")),
        proxy_url=block.given("proxy_url"),
        ca_file=certificates.given("ca_file"),
        cert_file=certificates.given("cert_file"),
        key_file=certificates.given("key_file"),
        server_name=certificates.given("server_name"),
        insecure_skip_verify=bool(certificates.value("insecure_skip_verify")),
        retry=bool(retry.value("enabled")),
        initial_interval_ns=retry.value("initial_interval"),
        max_interval_ns=retry.value("max_interval"),
        max_elapsed_time_ns=retry.value("max_elapsed_time"),
        headers=tuple(headers),
    )
