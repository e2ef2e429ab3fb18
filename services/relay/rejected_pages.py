"""Keeps pages that cannot be made into rows, so that an operator can find out why.

Never keeps more than a bound: a writer that is broken for good must not fill the disk.
"""

from __future__ import annotations

from typing import Final

from snavio.ports.archive import Archive
from snavio.ports.outbox import PageInfo

FOLDER: Final = "parked"
MOST: Final = 100


async def park(archive: Archive, page: PageInfo, body: bytes) -> bool:
    """Keep the page beside the archive's hours, as it came; False when there are enough of them."""
    name = f"{FOLDER}/{page.instance}-{page.epoch}-{page.first_seq}-{page.last_seq}.page"
    kept = {stored.name for stored in await archive.names(FOLDER)}
    if name not in kept and len(kept) >= MOST:
        return False
    await archive.put(name, body)
    return True
