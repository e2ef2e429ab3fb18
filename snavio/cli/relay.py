"""`snavio relay`: how far telemetry has come on its way to the archive and to tenants, and sending it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import OperatorCaller
from snavio.cli.group import CommandGroup
from snavio.cli.render import Record

if TYPE_CHECKING:
    from pathlib import Path

    from snavio.admin.relay import RelayClient, RelayProgress
    from snavio.config import MeshSettings

relay = CommandGroup(
    "See how far telemetry has come, and send a tenant's envelopes to its queue again.",
    examples=("snavio relay status", "snavio relay re-emit acme"),
)
MAX_SEQ = 2**64 - 1
Tenant = Annotated[str, typer.Argument(help="The tenant.")]
After = Annotated[
    int, typer.Option("--after", min=0, max=MAX_SEQ, help="Only envelopes after this number; 0 is all.")
]


@relay.command()
def status(*, caller: OperatorCaller) -> None:
    """Events that Relay has received, archived, cut, sealed and sent on since its start, and those that wait.

    \b
    Examples:
      snavio relay status
      snavio relay status --json | jq .envelopes_sealed
    """
    found = _document(caller.ask_client(_client, lambda client: client.progress()))
    caller.show(found, Record([(name.replace("_", " "), value) for name, value in found.items()]))


@relay.command("re-emit")
def re_emit(tenant: Tenant, *, after: After = 0, caller: OperatorCaller) -> None:
    """Send a tenant's stored envelopes to its queue again, under their own ids.

    Those that the queue still knows are not stored a second time.

    \b
    Examples:
      snavio relay re-emit acme
      snavio relay re-emit acme --after 32786000000000042
    """
    answer = caller.ask_client(_client, lambda client: client.re_emit(tenant, after=after))
    document = {"tenant": tenant, "after": answer.after, "envelopes": answer.envelopes}
    caller.show(
        document, f"{answer.envelopes} envelopes of {tenant} after {answer.after} go to its queue again."
    )


def _document(progress: RelayProgress) -> dict[str, Any]:
    counters, gauges = progress.counters, progress.gauges
    return {
        "events_received": counters.get("intake.events", 0),
        "events_missed": counters.get("intake.missed_events", 0),
        "events_archived": counters.get("export.events", 0),
        "pages_waiting": round(gauges.get("outbox.waiting_pages", 0)),
        "pages_cut": counters.get("cutting.pages", 0),
        "drafts_cut": counters.get("cutting.drafts", 0),
        "commands_counted": counters.get("cutting.counted", 0),
        "envelopes_sealed": counters.get("sealing.envelopes", 0),
        "tenants_parked": round(gauges.get("sealing.parked", 0)),
        "envelopes_pruned_early": counters.get("streams.pruned_early", 0),
        "events_never_sealed": counters.get("streams.dropped_events", 0),
        "envelopes_queued": counters.get("queues.sent", 0),
        "envelopes_known_to_queue": counters.get("queues.known", 0),
        "envelopes_never_queued": counters.get("queues.skipped", 0),
        "envelopes_undelivered": counters.get("queues.undelivered", 0),
        "queues_paused": round(gauges.get("queues.paused", 0)),
    }


def _client(mesh: MeshSettings, certificates: Path) -> RelayClient:
    from snavio.admin.relay import RelayClient

    return RelayClient(mesh.relay, certificates=certificates, trust_domain=mesh.trust_domain)
