"""Starts from a snapshot as Fast does, in a fresh process, and prints the duration and memory.

python -m bench.snapshot_load <folder> <public key, hex> <key id>
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import orjson

from bench.meters import resident_mb
from snavio.clock import SystemClock
from snavio.native import Dispatch
from snavio.signed.accepted import NoWatermark
from snavio.signed.snapshot_reader import Refused, SnapshotReader
from snavio.signed.verification import ACL, ROUTES, VerifiedSnapshot, VerifyingKey
from snavio.wiring import open_archive


async def main(folder: str, public_key: str, key_id: str) -> None:
    """Load once and print the figures."""

    async def keys() -> Sequence[VerifyingKey]:
        return [VerifyingKey(key_id, bytes.fromhex(public_key), 0)]

    clock, archive = SystemClock(), open_archive(Path(folder))
    reader = SnapshotReader(archive=archive, keys=keys, watermark=NoWatermark(), clock=clock)
    dispatch = Dispatch()

    def use(snapshot: VerifiedSnapshot) -> int:
        return dispatch.load_snapshot(
            snapshot.parts[ROUTES], snapshot.parts[ACL], now_unix_ns=clock.unix_ns()
        )

    # Once for an absent manifest: threads and imports are not part of the figure.
    await reader.load((ROUTES, ACL), use, kind="hmac")
    Path("/proc/self/clear_refs").write_text("5")  # Forget the peak so far.
    before, began, cpu = resident_mb(os.getpid()), time.perf_counter(), time.process_time()
    loaded = await reader.load((ROUTES, ACL), use)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if isinstance(loaded, Refused):
        raise SystemExit(f"refused: {loaded.refusal}")
    # Not from getrusage: that peak is inherited from the process that started us.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    counters = dispatch.counters()
    figures = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "grown_mb": resident_mb(os.getpid()) - before,
        "peak_mb": peak - before,
        "routes": counters["routes"],
        "acls": counters["acls"],
    }
    sys.stdout.write(orjson.dumps(figures).decode() + "\n")
    await archive.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
