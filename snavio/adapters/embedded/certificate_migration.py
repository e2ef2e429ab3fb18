"""Migrates the certificate ledger from an earlier schema: each certificate gets the root of its chain.

Never makes a damaged record look whole: it keeps a checksum that does not fit.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Any, Final

from snavio.adapters.embedded.sqlite import Migrations
from snavio.adapters.embedded.store_file import checksum
from snavio.domain.lineage import tenant_of_spiffe
from snavio.ports.certificates import IssuedCertificate


def _chains(connection: Any) -> None:
    """Schema 1 stored the parent of each certificate; follow the parents once to find the root."""
    for column in ("root TEXT NOT NULL DEFAULT ''", "via TEXT NOT NULL DEFAULT ''"):
        connection.execute(f"ALTER TABLE issued ADD COLUMN {column}")
    connection.execute("ALTER TABLE issued ADD COLUMN marked INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE issued ADD COLUMN tenant TEXT NOT NULL DEFAULT ''")
    rows = connection.execute(
        "SELECT serial, spiffe_id, issued_to, parent, delegate, issued_ns, not_after_ns, checksum"
        " FROM issued ORDER BY place"
    ).fetchall()
    known: dict[str, tuple[str, str, str]] = {}
    for *fields, kept in rows:
        serial, spiffe_id, _, parent, *_ = fields
        # A forgotten parent may have been of this identity or another; recorded as `via` it is found in both cases.
        parents_id, parents_root, parents_via = known.get(parent, ("", parent, ""))
        root, via = (parents_root, parents_via) if parents_id == spiffe_id else (serial, parents_root)
        known[serial] = (spiffe_id, root, via)
        values: tuple[Any, ...] = (*fields, root, via, False)
        issued = IssuedCertificate(*values)
        whole = kept == checksum(fields)
        connection.execute(
            "UPDATE issued SET root = ?, via = ?, tenant = ?, checksum = ? WHERE serial = ?",
            (root, via, tenant_of_spiffe(spiffe_id), checksum(astuple(issued)) if whole else kept, serial),
        )
    # Queries with a bound value cannot use a partial index, since SQLite does not know that the value is not empty.
    for index in ("issued_by_parent", "issued_by_delegate"):
        connection.execute(f"DROP INDEX {index}")
    connection.execute("CREATE INDEX issued_by_delegate ON issued (delegate)")
    connection.execute("CREATE INDEX issued_by_root ON issued (root)")
    connection.execute("CREATE INDEX issued_by_via ON issued (via)")
    connection.execute("CREATE INDEX issued_by_tenant ON issued (tenant)")
    connection.execute("CREATE TABLE principals (spiffe_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID")
    for table in ("issued", "barred"):
        connection.execute(
            f"INSERT OR IGNORE INTO principals SELECT spiffe_id FROM {table} WHERE spiffe_id LIKE '%/principal/%'"  # noqa: S608
        )


MIGRATIONS: Final[Migrations] = {1: _chains}
