"""A process that claims strict ids and takes permits in a store, says so, and waits to be killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from snavio.adapters.embedded.sqlite_coordination import SqliteCoordination
from snavio.clock import ManualClock
from snavio.domain.claim import Terms
from snavio.domain.quota import LimitRule
from snavio.ports.coordination import ClaimAsk, PermitAsk

TERMS = Terms(lease_ms=15_000, keep_ms=300_000)
RULE = LimitRule(max=100, interval_ms=60_000)
ROUTE = ("bot", "say")
BEGINNING_NS = 1_700_000_040_000_000_000


def claim(number: int) -> ClaimAsk:
    """One of the ids."""
    return ClaimAsk("acme/billing", number.to_bytes(16), b"p" * 32)


async def open_store(
    path: Path, clock: ManualClock, *, known: str | None, boot: str = "b"
) -> SqliteCoordination:
    """As Slow would open it."""
    return await SqliteCoordination.open(
        path,
        clock=clock,
        known_epoch=known,
        fresh_epoch="first" if known is None else "second",
        boot=boot,
        terms=TERMS,
        max_claims=10_000,
        max_claims_per_source=10_000,
    )


async def main(path: Path) -> None:
    store = await open_store(path, ManualClock(BEGINNING_NS), known=None)
    [permits] = await store.take([PermitAsk(ROUTE, RULE, 70)])
    await store.claim([claim(number) for number in range(50)], owner="doomed")
    await store.commit([claim(number) for number in range(20)], owner="doomed")
    sys.stdout.write(f"claimed {permits.count}\n")
    sys.stdout.flush()
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
