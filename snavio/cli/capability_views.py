"""Capabilities for people and for programs: a table, plain lines, one JSON document.

Never shows what makes one valid: a signature on a screen is a right in a screenshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snavio.cli.output import console, fancy, line

if TYPE_CHECKING:
    from snavio.domain.capability import Capability
    from snavio.v1.signer_pb2 import CapabilityRecord


def document(held: Capability) -> dict[str, Any]:
    """A capability as JSON, without its signature."""
    from snavio.domain.caveat import Operation

    bounds, identifier = held.bounds(), held.identifier
    quotas = [caveat.quota for caveat in held.caveats if caveat.quota is not None]
    return {
        "id": identifier.cap_id,
        "realm": identifier.realm,
        "topics": [list(some) for some in bounds.topics],
        "operations": [each for each in Operation if each in bounds.operations],
        "holders": list(bounds.holders),
        "quotas": [{"messages": quota.messages, "interval_ms": quota.interval_ms} for quota in quotas],
        "issued": moment(identifier.issued_ms),
        "expires": moment(bounds.expires_ms) if bounds.expires_ms else None,
        "root": identifier.root,
        "root_version": identifier.version,
        "caveats": [caveat.text() for caveat in held.caveats],
    }


def show_one(held: Capability) -> None:
    """One capability, a line per thing."""
    told = document(held)
    quotas = ", ".join(
        f"{one['messages']} messages in {one['interval_ms'] / 1000:g} s" for one in told["quotas"]
    )
    rows = [
        ("id", told["id"]),
        ("topics", " and ".join(" or ".join(some) for some in told["topics"])),
        ("operations", ", ".join(told["operations"]) or "none"),
        ("holder", " and ".join(told["holders"]) or "nobody: it cannot be used"),
        ("expires", told["expires"] or "never: it will be refused"),
        ("quota", quotas or "none"),
        ("issued", told["issued"]),
        ("root key", f"{told['realm']} version {told['root_version']} ({told['root']})"),
        ("caveats", str(len(told["caveats"]))),
    ]
    for name, value in rows:
        line(f"{name:<11} {value}")


def record_document(record: CapabilityRecord) -> dict[str, Any]:
    """What Signer has written down, as JSON."""
    return {
        "id": record.id,
        "realm": record.realm,
        "operations": list(record.operation),
        "holder": record.holder,
        "issued_to": record.issued_to,
        "root_version": record.root_version,
        "issued": moment(record.issued_unix_ns // 1_000_000),
        "expires": moment(record.expires_unix_ns // 1_000_000),
        "revoked": record.revoked,
    }


def show_list(records: Sequence[CapabilityRecord]) -> None:
    """A row per capability."""
    names = ("id", "state", "topics", "operations", "holder", "expires")
    rows = [
        (
            record.id,
            "revoked" if record.revoked else "good",
            record.realm,
            ",".join(record.operation),
            record.holder,
            moment(record.expires_unix_ns // 1_000_000),
        )
        for record in records
    ]
    out = console()
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    if out.is_terminal and sum(widths) + 3 * len(widths) > out.width:
        # Folded into narrow columns, no id could be copied.
        for cap_id, state, topics, operations, holder, expires in rows:
            line(f"{cap_id}  {state:<7}  until {expires}")
            line(f"  {operations} on {topics} for {holder}")
        return
    if fancy(out):
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
        for name in names:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*row, style="dim" if row[1] == "revoked" else "")
        out.print(table)
        return
    for row in [names, *rows]:
        line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def moment(unix_ms: int) -> str:
    """A time as people and programs read it."""
    return datetime.fromtimestamp(unix_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
