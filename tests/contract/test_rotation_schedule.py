"""The promises of the rotation scheduler on any key store: every key is rotated once, in time, and spread out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.signer.keys.key_polls import KeyPolls
from services.signer.keys.keysets import Keysets
from services.signer.keys.rotation_schedule import CATCH_UP_NS, TURN_NS, RotationSchedule
from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.clock import Clock, ManualClock
from snavio.errors import Conflict, Unavailable
from snavio.ports.keystore import KeyStore
from tests.support import keystores
from tests.support.keystores import KEY

DAY_S = 24 * 3600
CADENCE_NS = 30 * DAY_S * 10**9
path, store = keystores.path, keystores.store


def keysets(store: KeyStore, clock: Clock) -> Keysets:
    return Keysets(
        store=store,
        polls=KeyPolls(store=store, clock=clock),
        clock=clock,
        overlap_ns=7 * DAY_S * 10**9,
    )


def scheduler(store: KeyStore, clock: Clock) -> RotationSchedule:
    """One Signer's scheduler; it has no state that a restart would lose."""
    return RotationSchedule(keysets=keysets(store, clock), store=store, clock=clock, cadence_ns=CADENCE_NS)


async def make(store: KeyStore, clock: Clock, count: int) -> None:
    for number in range(count):
        await keysets(store, clock).create(f"acme/s{number:03}", actor="test")


async def versions(store: KeyStore) -> dict[str, int]:
    return {keyset.source: keyset.versions[-1].number for keyset in await store.keysets(limit=1000)}


async def test_nothing_is_rotated_or_written_before_its_time(store: KeyStore, clock: ManualClock) -> None:
    await make(store, clock, 3)
    written = (await store.keysets_since(0, limit=10)).version
    clock.advance(seconds=26 * DAY_S)
    assert await scheduler(store, clock).turn() == []
    assert (await store.keysets_since(0, limit=10)).version == written


async def test_every_source_is_rotated_once_in_a_cadence(store: KeyStore, clock: ManualClock) -> None:
    await make(store, clock, 5)
    for _ in range(31 * 4):
        clock.advance(seconds=DAY_S / 4)
        for source in await scheduler(store, clock).turn():
            await keysets(store, clock).promote(source, "hmac-v2", actor="test")
    assert set((await versions(store)).values()) == {2}


async def test_two_schedulers_on_one_store_rotate_once(store: KeyStore, clock: ManualClock) -> None:
    await make(store, clock, 1)
    clock.advance(seconds=30 * DAY_S)
    done = await asyncio.gather(*(scheduler(store, clock).turn() for _ in range(4)))
    assert sorted(map(len, done)) == [0, 0, 0, 1]
    assert await versions(store) == {"acme/s000": 2}


async def test_two_schedulers_who_both_saw_it_due_rotate_once(store: KeyStore, clock: ManualClock) -> None:
    """Even without the claimed turn: the due time is checked again inside the write."""
    await make(store, clock, 1)
    clock.advance(seconds=30 * DAY_S)
    client = keysets(store, clock)
    done = await asyncio.gather(
        *(client.rotate_if_due("acme/s000", cadence_ns=CADENCE_NS, actor="test") for _ in range(4))
    )
    assert sorted(done) == [False, False, False, True]


async def test_backlog_after_downtime_is_worked_off_in_shares(store: KeyStore, clock: ManualClock) -> None:
    total = 40
    await make(store, clock, total)
    clock.advance(seconds=90 * DAY_S)
    first = await scheduler(store, clock).turn()
    assert len(first) == 1
    # A second Signer, or a restart, does not make it faster.
    assert await scheduler(store, clock).turn() == []
    rotated = list(first)
    for _ in range(total):
        clock.advance(ns=TURN_NS)
        rotated += await scheduler(store, clock).turn()
    assert sorted(rotated) == sorted(await versions(store))
    assert total * TURN_NS < CATCH_UP_NS


async def test_clock_set_back_an_hour_rotates_nothing_twice(store: KeyStore, clock: ManualClock) -> None:
    await make(store, clock, 1)
    clock.advance(seconds=30 * DAY_S)
    assert len(await scheduler(store, clock).turn()) == 1
    behind = ManualClock(clock.unix_ns() - 3600 * 10**9)
    for _ in range(3 * 60):
        assert await scheduler(store, behind).turn() == []
        behind.advance(seconds=60)
    assert await versions(store) == {"acme/s000": 2}


async def test_of_two_rotations_at_once_one_wins(store: KeyStore, clock: ManualClock) -> None:
    await make(store, clock, 1)
    client = keysets(store, clock)
    done = await asyncio.gather(
        *(client.rotate("acme/s000", actor="test") for _ in range(5)), return_exceptions=True
    )
    lost = [error for error in done if isinstance(error, Conflict)]
    assert (len(lost), {error.reason for error in lost}) == (4, {"rotation-under-way"})
    assert await versions(store) == {"acme/s000": 2}


async def test_rotation_of_what_somebody_has_rotated_meanwhile_is_a_conflict(
    store: KeyStore, clock: ManualClock
) -> None:
    await make(store, clock, 1)
    client = keysets(store, clock)
    await client.rotate("acme/s000", actor="test", expected_newest="hmac-v1")
    with pytest.raises(Conflict):
        await client.rotate("acme/s000", actor="test", expected_newest="hmac-v1")


@pytest.mark.parametrize("place", ["os.fsync", "fsync_folder"])
async def test_rotation_cut_short_by_a_restart_leaves_the_old_or_the_new_state(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    path = tmp_path / "keys.sealed"
    store = await SealedKeyStore.open(path, key=KEY, create=True)
    before = await keysets(store, clock).create("acme/s000", actor="test")

    def cut(*_arguments: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(f"snavio.durable_files.{place}", cut)
        with pytest.raises(Unavailable):
            await keysets(store, clock).rotate("acme/s000", actor="test")
    await store.close()
    again = await SealedKeyStore.open(path, key=KEY)
    after = await again.keyset("acme/s000")
    assert after is not None
    if place == "os.fsync":
        assert after == before
    else:
        assert [version.number for version in after.versions] == [1, 2]
        assert [version.undecided for version in after.versions] == [False, True]
        await keysets(again, clock).promote("acme/s000", "hmac-v2", actor="test")
    # Either way the next rotation goes on from there.
    rotated = await keysets(again, clock).rotate("acme/s000", actor="test")
    assert rotated.versions[-1].number == after.versions[-1].number + 1
    await again.close()
