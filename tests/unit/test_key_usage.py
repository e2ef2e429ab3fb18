"""Traffic per key version as Signer counts it, and the warnings derived from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.signer.keys.key_expiry_watch import MAX_ROWS, KeyExpiryWatch
from services.signer.keys.key_polls import KeyPolls
from services.signer.keys.key_traffic import KeyTraffic
from services.signer.keys.keysets import Keysets
from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.adapters.embedded.sealing import SealingKey
from snavio.clock import ManualClock
from snavio.domain.key_retirement import Use
from snavio.errors import BadRequest
from snavio.native import Admission, sign_command
from snavio.telemetry.events import EventJournal, LegacyKeyUsed

SOURCE = "acme/billing"
DAY_S = 24 * 3600


class Watched:
    """Signer's watch over one source, without a wire."""

    def __init__(self, store: SealedKeyStore, clock: ManualClock) -> None:
        self.clock, self.store = clock, store
        self.polls = KeyPolls(store=store, clock=clock)
        self.usage = KeyTraffic(clock=clock)
        self.events = EventJournal(epoch=1)
        self.key_expiry_watch = KeyExpiryWatch(
            store=store, usage=self.usage, polls=self.polls, events=self.events, clock=clock
        )
        self.keysets = Keysets(
            store=store,
            polls=self.polls,
            clock=clock,
            overlap_ns=7 * DAY_S * 10**9,
        )

    async def rotate(self) -> None:
        """A whole rotation, from the new version to producers that sign with it."""
        version = (await self.keysets.rotate(SOURCE, actor="test")).versions[-1].name
        self.clock.advance(seconds=10)
        await self.keysets.promote(SOURCE, version, actor="test")

    def said(self) -> list[tuple[str, dict[str, Any]]]:
        return [(one.event.name, dict(one.event.fields())) for one in self.events.after(0, limit=100)]


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    store = await SealedKeyStore.open(tmp_path / "keys.sealed", key=SealingKey(b"k" * 32), create=True)
    watched = Watched(store, ManualClock())
    await watched.keysets.create(SOURCE, actor="test")
    yield watched
    await store.close()


def test_counts_slide_out_of_the_hour_and_the_day() -> None:
    clock = ManualClock()
    usage = KeyTraffic(clock=clock)
    usage.note(SOURCE, "hmac-v1", 5)
    used = clock.unix_ns()
    assert usage.of(SOURCE, "hmac-v1") == Use(5, 5, used, 5)
    clock.advance(seconds=3600 + 300)
    assert usage.of(SOURCE, "hmac-v1") == Use(0, 5, used, 5)
    clock.advance(seconds=DAY_S)
    assert usage.of(SOURCE, "hmac-v1") == Use(0, 0, used, 5)
    clock.advance(seconds=DAY_S)
    assert usage.of(SOURCE, "hmac-v1") == Use(0, 0, used)
    assert usage.of(SOURCE, "hmac-v2") == Use()


def test_silence_of_a_day_is_never_claimed_too_early() -> None:
    clock = ManualClock()
    usage = KeyTraffic(clock=clock)
    usage.note(SOURCE, "hmac-v1", 1)
    clock.advance(seconds=DAY_S - 1)
    assert usage.of(SOURCE, "hmac-v1").last_day == 1


def test_memory_of_traffic_is_bounded_and_the_longest_silent_goes() -> None:
    clock = ManualClock()
    usage = KeyTraffic(clock=clock, max_tracked=3)
    for number in range(5):
        usage.note(f"acme/s{number}", "hmac-v1", 1)
        usage.note("acme/s0", "hmac-v1", 1)
    assert usage.of("acme/s0", "hmac-v1").last_day == 6
    assert usage.of("acme/s1", "hmac-v1") == Use()


async def test_use_of_the_primary_says_nothing(watched: Watched) -> None:
    await watched.key_expiry_watch.report([(SOURCE, "hmac-v1", 10)])
    assert watched.said() == []
    assert watched.usage.of(SOURCE, "hmac-v1").last_hour == 10


async def test_use_of_the_previous_version_is_said_once_an_hour(watched: Watched) -> None:
    await watched.rotate()
    for _ in range(3):
        await watched.key_expiry_watch.report([(SOURCE, "hmac-v1", 1), (SOURCE, "hmac-v2", 1)])
    legacy = (
        "snavio.secret.legacy_key_used",
        {"version_id": "hmac-v1", "source": SOURCE, "time_of_last_config_poll": None},
    )
    assert watched.said() == [legacy]
    watched.clock.advance(seconds=3600)
    await watched.keysets.of(SOURCE)
    await watched.key_expiry_watch.report([(SOURCE, "hmac-v1", 1)])
    name, fields = watched.said()[1]
    assert (name, fields["version_id"]) == (legacy[0], "hmac-v1")
    assert (fields["time_of_last_config_poll"] or "").endswith("Z")


async def test_source_that_has_not_asked_is_warned_before_its_key_ends(watched: Watched) -> None:
    await watched.keysets.of(SOURCE)
    watched.clock.advance(seconds=1)
    await watched.rotate()
    watched.clock.advance(seconds=5 * DAY_S)
    await watched.key_expiry_watch.report([(SOURCE, "hmac-v1", 1)])
    assert [name for name, _ in watched.said()] == [
        "snavio.secret.legacy_key_used",
        "snavio.secret.key_expiry_imminent",
    ]
    assert set(watched.said()[1][1]) == {"version_id", "source", "time_of_last_config_poll"}


async def test_source_that_asked_while_the_new_version_spread_is_warned_all_the_same(
    watched: Watched,
) -> None:
    """It has the secret, and does not know that it is to sign with it."""
    version = (await watched.keysets.rotate(SOURCE, actor="test")).versions[-1].name
    await watched.keysets.of(SOURCE)
    watched.clock.advance(seconds=10)
    await watched.keysets.promote(SOURCE, version, actor="test")
    watched.clock.advance(seconds=6 * DAY_S)
    await watched.key_expiry_watch.report([(SOURCE, "hmac-v1", 1)])
    assert "snavio.secret.key_expiry_imminent" in [name for name, _ in watched.said()]


async def test_source_that_has_asked_is_not_warned_of_the_end(watched: Watched) -> None:
    await watched.rotate()
    await watched.keysets.of(SOURCE)
    watched.clock.advance(seconds=6 * DAY_S)
    await watched.key_expiry_watch.report([(SOURCE, "hmac-v1", 1)])
    assert [name for name, _ in watched.said()] == ["snavio.secret.legacy_key_used"]


async def test_reports_about_nobody_are_ignored_and_oversized_ones_refused(watched: Watched) -> None:
    await watched.key_expiry_watch.report(
        [("rival/x", "hmac-v1", 1), (SOURCE, "hmac-v9", 1), (SOURCE, "hmac-v1", 0)]
    )
    assert watched.usage.of("rival/x", "hmac-v1") == Use()
    assert watched.usage.of(SOURCE, "hmac-v1") == Use()
    with pytest.raises(BadRequest):
        await watched.key_expiry_watch.report([(SOURCE, "hmac-v1", 1)] * (MAX_ROWS + 1))


async def test_polls_reach_the_disk_at_most_once_a_minute(watched: Watched) -> None:
    await watched.keysets.of(SOURCE)
    await watched.polls.write()
    first = await watched.store.polls()
    assert first == {SOURCE: watched.clock.unix_ns()}
    for _ in range(59):
        watched.clock.advance(seconds=1)
        await watched.keysets.of(SOURCE)
        await watched.polls.write()
    assert await watched.store.polls() == first
    watched.clock.advance(seconds=1)
    await watched.polls.write()
    assert (await watched.store.polls())[SOURCE] == first[SOURCE] + 59 * 10**9


async def test_polls_survive_a_restart(watched: Watched) -> None:
    await watched.keysets.of(SOURCE)
    await watched.polls.write(now=True)
    again = KeyPolls(store=watched.store, clock=watched.clock)
    assert again.last_ns(SOURCE) is None
    await again.load()
    assert again.last_ns(SOURCE) == watched.clock.unix_ns()


def test_journal_is_bounded_and_says_what_was_missed() -> None:
    journal = EventJournal(epoch=7, max_events=3)
    for number in range(5):
        journal.record(LegacyKeyUsed(f"hmac-v{number}", SOURCE, None), at_unix_ns=number)
    assert [one.seq for one in journal.after(0, limit=10)] == [3, 4, 5]
    assert [one.seq for one in journal.after(3, limit=1)] == [4]
    assert (journal.missed_since(0), journal.missed_since(1), journal.missed_since(4)) == (2, 1, 0)
    assert journal.counters() == {"snavio.secret.legacy_key_used": 5}


def test_admission_counts_accepted_commands_per_version_and_tells_them_once() -> None:
    clock = ManualClock()
    admission = Admission(audience="shield-0:1", nonce_capacity=1000, nonce_share_per_tenant=1000)
    admission.set_keyset(SOURCE, [("v1", b"1" * 32, 0, 0, False), ("v2", b"2" * 32, 0, 0, False)])

    def submit(version: str, secret: bytes, number: int) -> None:
        command = sign_command(
            secret,
            key_version=version,
            audience="shield-0:1",
            command_id=f"00000000-0000-7000-8000-{number:012d}",
            timestamp_unix_ns=clock.unix_ns(),
            target="bot",
            name="notify",
            payload=b"",
        )
        admission.judge_one(
            command, source=SOURCE, cert_serial="1", now_unix_ns=clock.unix_ns(), budget_ms=1000
        )

    submit("v1", b"1" * 32, 1)
    submit("v2", b"2" * 32, 2)
    submit("v2", b"2" * 32, 3)
    submit("v2", b"2" * 32, 3)  # Replayed: its use was counted when it was let in.
    submit("v2", b"f" * 32, 4)  # Forged: whoever cannot sign must not be able to make a key look used.
    # A key set that is replaced goes on with the counts of the one before.
    admission.set_keyset(SOURCE, [("v1", b"1" * 32, 0, 9, False), ("v2", b"2" * 32, 0, 0, False)])
    assert sorted(admission.key_usage()) == [(SOURCE, "v1", 1), (SOURCE, "v2", 2)]
    assert admission.key_usage() == []
