"""Capabilities as documents, records and rows.

Never shows what makes one valid: a signature on a screen is a right in a screenshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from snavio.cli.render import LIST, Record, Row, Table, TableColumn, picked, time_text

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
        "issued": time_text(identifier.issued_ms * 1_000_000),
        "expires": time_text((bounds.expires_ms or 0) * 1_000_000),
        "root": identifier.root,
        "root_version": identifier.version,
        "caveats": [caveat.text() for caveat in held.caveats],
    }


def record(told: Row) -> Record:
    """A document as lines."""
    quotas = ", ".join(
        f"{one['messages']} messages in {one['interval_ms'] / 1000:g} s" for one in told["quotas"]
    )
    return Record(
        (
            ("id", told["id"]),
            ("topics", " and ".join(" or ".join(some) for some in told["topics"])),
            ("operations", ", ".join(told["operations"]) or "none"),
            ("holder", " and ".join(told["holders"]) or "nobody: it cannot be used"),
            ("expires", told["expires"] or "never: it will be refused"),
            ("quota", quotas or "none"),
            ("issued", told["issued"]),
            ("root key", f"{told['realm']} version {told['root_version']} ({told['root']})"),
            ("caveats", len(told["caveats"])),
        )
    )


def record_document(record: CapabilityRecord) -> dict[str, Any]:
    """A capability as Signer has it on record, as JSON."""
    return {
        **picked(record, "id", "realm", "holder", "issued_to", "root_version", "revoked"),
        "operations": list(record.operation),
        "issued": time_text(record.issued_unix_ns),
        "expires": time_text(record.expires_unix_ns),
    }


def listed(rows: Sequence[Row]) -> Table:
    """A row per capability."""
    return Table(
        (
            "id",
            TableColumn("state", lambda row: "revoked" if row["revoked"] else "good"),
            TableColumn("topics", "realm"),
            TableColumn("operations", kind=LIST),
            "holder",
            "expires",
        ),
        rows,
        none="No capability is alive: consumers and services ask for theirs when they first need one.",
        style=lambda row: "dim" if row["revoked"] else "",
    )
