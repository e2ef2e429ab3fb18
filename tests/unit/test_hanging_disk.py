"""A disk that hangs delays nothing but what needs it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from services.shield import snapshot_key_cache as shield
from services.signer.keys import traffic_ledger
from services.signer.keys.key_expiry_watch import KeyExpiryWatch
from services.signer.keys.key_traffic import KeyTraffic
from services.signer.keys.traffic_ledger import TrafficLedger
from snavio.clock import ManualClock
from snavio.errors import Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.v1.signer_pb2 import SnapshotKeyResponse


class HangingFile:
    """A `Watermark` whose disk has stopped."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.asked = 0

    def read(self) -> bytes | None:
        self.asked += 1
        self.end.wait(30)
        return None

    def keep(self, _encoded: bytes) -> None:
        self.asked += 1
        self.end.wait(30)


class NoTraffic:
    """A `KeyExpiryWatch` that has nothing to report."""

    def told(self) -> list[list[Any]]:
        return []


class Signer:
    """Returns the opening key."""

    async def call(self, *_arguments: object, **_named: object) -> SnapshotKeyResponse:
        return SnapshotKeyResponse(key=b"k" * 32)


@pytest.fixture
def disk() -> Iterator[HangingFile]:
    file = HangingFile()
    yield file
    file.end.set()


async def test_counts_of_keys_wait_no_longer_than_their_bound_and_use_up_one_thread(
    disk: HangingFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic_ledger, "DISK_SECONDS", 0.02)
    clock = ManualClock()
    ledger = TrafficLedger(
        file=disk,
        usage=KeyTraffic(clock=clock),
        key_expiry_watch=cast("KeyExpiryWatch", NoTraffic()),
        clock=clock,
    )
    async with asyncio.timeout(5):
        await ledger.load()
        for _ in range(50):
            await ledger.write(now=True)
        await ledger.close()
    assert disk.asked == 1


async def test_shield_starts_with_what_signer_told_while_it_cannot_be_kept(
    disk: HangingFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shield, "DISK_SECONDS", 0.02)
    opening = shield.SnapshotKeyCache(signer=cast("MeshChannel", Signer()), file=disk, clock=ManualClock())
    async with asyncio.timeout(5):
        await opening.start()
        await opening.learn()
        assert opening.key() == b"k" * 32
        await opening.stop()


async def test_shield_that_hears_nobody_does_not_wait_for_what_it_kept(
    disk: HangingFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(Signer):
        async def call(self, *_arguments: object, **_named: object) -> SnapshotKeyResponse:
            raise Unavailable("scripted")

    monkeypatch.setattr(shield, "DISK_SECONDS", 0.02)
    opening = shield.SnapshotKeyCache(signer=cast("MeshChannel", Away()), file=disk, clock=ManualClock())
    async with asyncio.timeout(5):
        await opening.start()
        with pytest.raises(Unavailable):
            opening.key()
        await opening.stop()
