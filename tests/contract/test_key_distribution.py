"""A rotated key becomes primary when every Shield has it, on any key store: not sooner, not never, not twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.signer.keys import key_rollout as rules
from services.signer.keys.key_polls import KeyPolls
from services.signer.keys.key_rollout import KeyRollout
from services.signer.keys.keysets import Keysets
from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.clock import ManualClock
from snavio.domain.key_rollout import Holder
from snavio.errors import Unavailable
from snavio.ports.keystore import KeyStore
from tests.support import keystores
from tests.support.keystores import KEY

SOURCE, SECOND_NS = "acme/billing", 10**9
LEAST_S, GOOD_FOR_S = 10, 180
path, store = keystores.path, keystores.store


class Signer:
    """One Signer's knowledge of Shields; a new one on the same store is a restart, or a second Signer."""

    def __init__(self, store: KeyStore, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.keysets = Keysets(
            store=store, polls=KeyPolls(store=store, clock=clock), clock=clock, overlap_ns=3600 * SECOND_NS
        )
        self.distribution = KeyRollout(
            keysets=self.keysets, store=store, clock=clock, least_ns=LEAST_S * SECOND_NS
        )

    async def pull(self, *names: str, has: int | None = None) -> None:
        """A Shield's pull, with its version, by default the newest."""
        page = await self.store.keysets_since(0, limit=1000)
        for name in names:
            self.distribution.hear(
                name,
                store_epoch=page.store_epoch,
                version=page.version if has is None else has,
                good_for_ns=GOOD_FOR_S * SECOND_NS,
            )

    async def rotate(self) -> int:
        """Rotate; the store's version before it."""
        before = (await self.store.keysets_since(0, limit=1000)).version
        await self.keysets.rotate(SOURCE, actor="test")
        return before

    async def primary(self) -> str:
        """The primary version after one more check."""
        await self.distribution.turn()
        keyset = await self.store.keyset(SOURCE)
        assert keyset is not None
        found = keyset.primary(self.clock.unix_ns())
        assert found is not None
        return found.name


@pytest.fixture
async def signer(store: KeyStore, clock: ManualClock) -> Signer:
    made = Signer(store, clock)
    await made.keysets.create(SOURCE, actor="test")
    return made


async def test_key_is_primary_when_every_shield_has_it_and_no_sooner_than_the_delay(signer: Signer) -> None:
    await signer.pull("a", "b")
    await signer.rotate()
    await signer.pull("a", "b")
    signer.clock.advance(seconds=LEAST_S - 1)
    assert await signer.primary() == "hmac-v1"
    signer.clock.advance(seconds=1)
    assert await signer.primary() == "hmac-v2"


async def test_shield_that_is_heard_and_late_holds_the_rotation_for_as_long_as_it_takes(
    signer: Signer,
) -> None:
    before = await signer.rotate()
    with capture_logs() as said:
        for _ in range(20):
            signer.clock.advance(seconds=60)
            await signer.pull("a")
            await signer.pull("b", has=before)
            assert await signer.primary() == "hmac-v1"
    waits = [entry for entry in said if entry["event"] == "rotation waits"]
    assert [entry["waits_for"] for entry in waits] == [["b"]]
    assert signer.distribution.gauges() == {"spreading": 1, "spreading_longest_s": 1200}
    await signer.pull("b")
    assert await signer.primary() == "hmac-v2"
    assert signer.distribution.gauges() == {"spreading": 0, "spreading_longest_s": 0}


async def test_silent_shield_is_waited_for_until_it_lets_nothing_in_by_itself(signer: Signer) -> None:
    await signer.pull("a", "b")
    await signer.primary()
    await signer.rotate()
    for _ in range(GOOD_FOR_S // 10 - 1):
        signer.clock.advance(seconds=10)
        await signer.pull("a")
        assert await signer.primary() == "hmac-v1"
    signer.clock.advance(seconds=10)
    await signer.pull("a")
    assert await signer.primary() == "hmac-v2"
    assert [holder.name for holder in (await signer.store.spread()).holders] == ["a"]


async def test_shield_that_says_goodbye_is_not_waited_for(signer: Signer) -> None:
    await signer.pull("a", "b")
    await signer.primary()
    await signer.rotate()
    await signer.pull("a")
    signer.distribution.hear("b", store_epoch=0, version=0, good_for_ns=0)
    signer.clock.advance(seconds=LEAST_S)
    assert await signer.primary() == "hmac-v2"


async def test_shield_that_came_back_with_older_keys_is_waited_for_again(signer: Signer) -> None:
    before = await signer.rotate()
    await signer.pull("a")
    await signer.distribution.turn()
    await signer.pull("a", has=before)
    signer.clock.advance(seconds=LEAST_S)
    assert await signer.primary() == "hmac-v1"


async def test_versions_of_another_store_prove_nothing(signer: Signer) -> None:
    await signer.rotate()
    signer.distribution.hear("a", store_epoch=7, version=1 << 40, good_for_ns=GOOD_FOR_S * SECOND_NS)
    signer.clock.advance(seconds=LEAST_S)
    assert await signer.primary() == "hmac-v1"


async def test_restarted_signer_still_knows_whom_to_wait_for(signer: Signer) -> None:
    await signer.pull("a", "b")
    await signer.distribution.turn()
    await signer.rotate()
    await signer.pull("a")
    again = Signer(signer.store, signer.clock)
    signer.clock.advance(seconds=LEAST_S)
    await again.pull("a")
    assert await again.primary() == "hmac-v1"
    await again.pull("b")
    assert await again.primary() == "hmac-v2"


async def test_restarted_signer_listens_first(signer: Signer) -> None:
    await signer.rotate()
    signer.clock.advance(seconds=1000)
    again = Signer(signer.store, signer.clock)
    assert await again.primary() == "hmac-v1"
    signer.clock.advance(seconds=LEAST_S)
    assert await again.primary() == "hmac-v2"


async def test_restart_does_not_make_a_shield_silent_that_nobody_could_hear(signer: Signer) -> None:
    await signer.pull("a")
    await signer.distribution.turn()
    await signer.rotate()
    signer.clock.advance(seconds=10 * GOOD_FOR_S)
    again = Signer(signer.store, signer.clock)
    signer.clock.advance(seconds=GOOD_FOR_S - 1)
    assert await again.primary() == "hmac-v1"


async def test_clock_set_back_an_hour_holds_up_no_rotation(signer: Signer) -> None:
    signer.clock.advance(seconds=2 * 3600)
    await signer.pull("gone")
    await signer.distribution.turn()
    await signer.rotate()
    behind = ManualClock(signer.clock.unix_ns() - 3600 * SECOND_NS)
    again = Signer(signer.store, behind)
    behind.advance(seconds=GOOD_FOR_S - 1)
    assert await again.primary() == "hmac-v1"
    behind.advance(seconds=1)
    await again.distribution.turn()
    keyset = await signer.store.keyset(SOURCE)
    assert keyset is not None
    assert not keyset.versions[-1].undecided


async def test_signers_that_each_hear_one_shield_promote_once_and_only_together(signer: Signer) -> None:
    other = Signer(signer.store, signer.clock)
    for one, shield in ((signer, "a"), (other, "b")):
        await one.pull(shield)
        await one.distribution.turn()
    before = await signer.rotate()
    for _ in range(2 * GOOD_FOR_S // 30):
        # Each hears from its own Shield only, for far longer than it would wait for a silent one.
        signer.clock.advance(seconds=30)
        await signer.pull("a")
        await other.pull("b", has=before)
        assert {await signer.primary(), await other.primary()} == {"hmac-v1"}
    await other.pull("b")
    promoted = [await one.distribution.turn() for one in (other, signer)]
    assert sorted(promoted) == [[], [SOURCE]]


async def test_two_signers_at_once_promote_once(signer: Signer) -> None:
    others = [Signer(signer.store, signer.clock) for _ in range(3)]
    await signer.rotate()
    signer.clock.advance(seconds=LEAST_S)
    promoted = await asyncio.gather(*(one.distribution.turn() for one in (signer, *others)))
    assert sorted(promoted) == [[], [], [], [SOURCE]]
    keyset = await signer.store.keyset(SOURCE)
    assert keyset is not None
    assert [version.primary_from_ns for version in keyset.versions][1] == signer.clock.unix_ns()
    signer.clock.advance(seconds=LEAST_S)
    await asyncio.gather(*(one.distribution.turn() for one in (signer, *others)))
    assert await signer.store.keyset(SOURCE) == keyset


async def test_emergency_waits_for_nobody(signer: Signer) -> None:
    before = await signer.rotate()
    await signer.pull("a", has=before)
    await signer.keysets.revoke(SOURCE, "hmac-v1", actor="test")
    assert await signer.primary() == "hmac-v2"


async def test_idle_shields_cost_no_write(signer: Signer) -> None:
    await signer.pull("a", "b")
    await signer.distribution.turn()
    version = (await signer.store.keysets_since(0, limit=1)).version
    for _ in range(100):
        signer.clock.advance(seconds=60)
        await signer.pull("a", "b")
        await signer.distribution.turn()
    assert (await signer.store.keysets_since(0, limit=1)).version == version


async def test_full_disk_holds_the_rotation_and_forgets_nobody(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await signer.rotate()
    await signer.pull("a")
    signer.clock.advance(seconds=LEAST_S)

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("snavio.adapters.embedded.sealed_file.replace_private_file", full)
        with pytest.raises(Unavailable):
            await signer.distribution.turn()
    assert await signer.primary() == "hmac-v2"


async def test_memory_of_shields_is_bounded_and_the_longest_silent_goes(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MAX_HOLDERS", 3)
    for name in ("a", "b", "c", "a", "d"):
        await signer.pull(name)
        await signer.distribution.turn()
    assert sorted(holder.name for holder in (await signer.store.spread()).holders) == ["a", "c", "d"]


async def test_who_has_what_is_told_for_every_source(signer: Signer) -> None:
    await signer.keysets.create("acme/other", actor="test")
    before = await signer.rotate()
    await signer.pull("a")
    await signer.pull("b", has=before)
    told = await signer.distribution.holders_of(await signer.store.keysets(limit=10))
    has = {source: {holder.name: has for holder, has in rows} for source, rows in told.items()}
    assert has == {SOURCE: {"a": True, "b": False}, "acme/other": {"a": True, "b": True}}


async def test_holders_are_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "again.sealed"
    store = await SealedKeyStore.open(path, key=KEY, create=True)
    holders = [Holder(name, 7, 3, 5, 9) for name in ("a", "b")]
    await store.record_holders(holders)
    await store.record_holders([], gone=["a", "nobody"])
    await store.close()
    again = await SealedKeyStore.open(path, key=KEY)
    assert (await again.spread()).holders == (holders[1],)
    await again.close()
