"""Sealing: signed, chained and in order, or not at all; and one tenant's trouble is its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from services.relay.sealing import Sealing
from services.relay.tenant_keys import TenantAnswer, TenantOrder
from snavio.clock import ManualClock
from snavio.domain.stream import OutsideReplayWindow, Position
from snavio.errors import Unavailable
from snavio.native import uuid7
from snavio.ports.tenant_streams import NewDraft, StreamEntry, TenantStreams
from snavio.signed.verification import VerifyingKey
from snavio.wiring import open_tenant_streams
from tests.support.sealing import TenantSigner, verified_events

NOW = 1_794_794_400_000_000_000
SKIPPED = 'sse_relay_skip_total{reason="no_signing_key"}'
AWAY = 'sse_publisher_sign_failures_total{reason="provider_unavailable"}'
UNSIGNED = 'sse_publisher_sign_failures_total{reason="publish_error"}'


@dataclass
class SealingTable:
    clock: ManualClock
    streams: TenantStreams
    signing: TenantSigner
    sealing: Sealing
    known: set[str]
    appended: list[tuple[str, list[int], Position]]
    cut: int = 0

    async def draft(self, tenant: str, *numbers: int) -> None:
        """Drafts with an event each."""
        self.cut += 1
        drafts = [
            NewDraft(
                uuid7(), tenant, f"{tenant}/shop", "command", self.clock.unix_ns(), 1, b'[{"n":%d}]' % number
            )
            for number in numbers
        ]
        await self.streams.cut(self.cut, drafts)

    async def events(self, tenant: str) -> list[Any]:
        return [event["n"] for event in await verified_events(self.streams, self.signing, tenant)]

    def another(self, fence: int) -> Sealing:
        """One more Relay on the same store."""
        return Sealing(
            streams=self.streams,
            signing=self.signing,
            knows=self.known.__contains__,
            clock=self.clock,
            fence=fence,
        )


class Interrupted:
    """A Signer that is away for a minute from a call on, which it may still have done."""

    def __init__(self, inner: TenantSigner, at: int, *, answers: bool) -> None:
        self._inner, self._at, self._answers = inner, at, answers
        self.calls = 0
        self._until_ns = 0

    async def _called(self, call: Awaitable[Any]) -> Any:
        self.calls += 1
        now = self._inner.clock.mono_ns()
        first = self.calls == self._at
        if first:
            self._until_ns = now + 60_000_000_000
        if now < self._until_ns:
            if first and self._answers:
                await call
            else:
                cast(Coroutine[Any, Any, Any], call).close()
            raise Unavailable("Signer is away.")
        return await call

    async def sign(self, orders: Sequence[TenantOrder]) -> list[TenantAnswer]:
        found: list[TenantAnswer] = await self._called(self._inner.sign(orders))
        return found

    async def provision(self, tenant: str) -> None:
        await self._called(self._inner.provision(tenant))

    async def ever(self, tenant: str) -> Sequence[VerifyingKey]:
        found: Sequence[VerifyingKey] = await self._called(self._inner.ever(tenant))
        return found


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[SealingTable]:
    clock = ManualClock(NOW)
    streams = await open_tenant_streams(tmp_path / "streams.db", clock=clock)
    signing, known = TenantSigner(clock), {"acme", "globex"}
    appended: list[tuple[str, list[int], Position]] = []

    def note(tenant: str, entries: Any, position: Position) -> None:
        appended.append((tenant, [entry.seq for entry in entries], position))

    sealing = Sealing(
        streams=streams, signing=signing, knows=known.__contains__, clock=clock, fence=7, appended=note
    )
    yield SealingTable(clock, streams, signing, sealing, known, appended)
    await streams.close()


async def test_drafts_become_a_signed_chain_in_their_order(table: SealingTable) -> None:
    await table.draft("acme", 1, 2, 3)
    await table.draft("globex", 10)
    assert await table.sealing.seal() == 4
    await table.draft("acme", 4)
    assert await table.sealing.seal() == 1
    assert (await table.events("acme"), await table.events("globex")) == ([1, 2, 3, 4], [10])
    assert await table.streams.waiting() == {}
    window = await table.streams.window("acme")
    assert table.appended[-1] == ("acme", [window.high], window)


async def test_many_tenants_are_signed_for_in_one_call(table: SealingTable) -> None:
    tenants = [f"t{number}" for number in range(50)]
    for tenant in tenants:
        table.signing.make(tenant)
        await table.draft(tenant, 1)
    await table.sealing.seal()
    before = table.signing.calls
    for tenant in tenants:
        await table.draft(tenant, 2)
    await table.sealing.seal()
    assert table.signing.calls == before + 1
    assert [await table.events(tenant) for tenant in tenants] == [[1, 2]] * 50


async def test_while_signer_is_away_nothing_leaves_and_nothing_is_lost(table: SealingTable) -> None:
    await table.draft("acme", 1)
    await table.sealing.seal()
    table.signing.away = True
    await table.draft("acme", 2, 3)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await table.sealing.seal()
    assert table.sealing.counters()[AWAY] == 3
    assert await table.streams.waiting() == {"acme": 2}
    table.signing.away = False
    await table.sealing.seal()
    assert await table.events("acme") == [1, 2, 3]


async def test_signer_may_be_away_for_a_minute_before_and_after_each_of_its_answers(
    table: SealingTable,
) -> None:
    """At every call of a life: keys, signatures and provision; the answer may be lost as well as the question."""
    told = 0
    for silent in range(1, 9):
        for answers in (False, True):
            signer = Interrupted(table.signing, silent, answers=answers)
            sealing = Sealing(
                streams=table.streams,
                signing=signer,
                knows=table.known.__contains__,
                clock=table.clock,
                fence=7,
            )
            tenant = f"t{silent}{answers:d}".lower()
            table.known.add(tenant)
            for _ in range(4):
                await table.draft("acme", told := told + 1)
                await table.draft(tenant, told)
                for _ in range(12):
                    with suppress(Unavailable):
                        await sealing.seal()
                    table.clock.advance(seconds=5.0)
            assert signer.calls >= silent, "it was interrupted"
            assert await table.events(tenant) == list(range(told - 3, told + 1))
    assert await table.events("acme") == list(range(1, told + 1))


async def test_a_tenant_without_a_key_is_parked_alone_and_provisioned_when_it_is_known(
    table: SealingTable,
) -> None:
    table.known.discard("acme")
    await table.draft("acme", 1)
    await table.draft("globex", 1)
    await table.sealing.seal()
    assert (await table.events("globex"), await table.streams.waiting()) == ([1], {"acme": 1})
    assert (table.sealing.counters()[SKIPPED], table.sealing.gauges()["parked"]) == (1, 1.0)
    calls = table.signing.calls
    await table.sealing.seal()
    assert table.signing.calls == calls, "it is left alone for a while"
    table.known.add("acme")
    table.clock.advance(seconds=2)
    await table.sealing.seal()
    assert await table.events("acme") == [1]


async def test_a_signature_that_does_not_verify_is_never_appended(table: SealingTable) -> None:
    table.signing.make("acme")
    table.signing.lying = "acme"
    await table.draft("acme", 1)
    await table.draft("globex", 2)
    await table.sealing.seal()
    assert (await table.streams.window("acme")).head == "" and await table.events("globex") == [2]
    assert table.sealing.counters()[UNSIGNED] == 1
    table.signing.lying = ""
    table.clock.advance(seconds=61)
    await table.sealing.seal()
    assert await table.events("acme") == [1]


async def test_the_longest_good_beginning_is_appended(
    table: SealingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.signing.make("acme")
    honest = table.signing._one

    def third_is_bad(order: Any) -> TenantAnswer:
        answer = honest(order)
        return replace(
            answer,
            signatures=tuple(
                bytes(64) if place == 2 else signature for place, signature in enumerate(answer.signatures)
            ),
        )

    monkeypatch.setattr(table.signing, "_one", third_is_bad)
    await table.draft("acme", 1, 2, 3, 4)
    await table.sealing.seal()
    assert await table.events("acme") == [1, 2]
    monkeypatch.undo()
    table.clock.advance(seconds=61)
    await table.sealing.seal()
    assert await table.events("acme") == [1, 2, 3, 4]


async def test_a_rotation_is_followed_without_a_break(table: SealingTable) -> None:
    await table.draft("acme", 1)
    await table.sealing.seal()
    table.signing.rotate("acme")
    for number in range(2, 8):
        table.clock.advance(seconds=30)
        await table.draft("acme", number)
        await table.sealing.seal()
        await table.sealing.seal()
    assert await table.events("acme") == [1, 2, 3, 4, 5, 6, 7]
    assert table.sealing.counters()["sealing.epochs"] == 0


@pytest.mark.parametrize("restarted", [False, True])
async def test_after_an_emergency_rotation_the_stream_begins_anew(
    table: SealingTable, restarted: bool
) -> None:
    await table.draft("acme", 1)
    await table.sealing.seal()
    before = await table.streams.window("acme")
    table.clock.advance(seconds=1)
    table.signing.rotate("acme", emergency=True)
    sealing = table.another(8) if restarted else table.sealing
    await table.draft("acme", 2)
    await sealing.seal()
    await sealing.seal()
    after = await table.streams.window("acme")
    assert after.epoch > before.epoch and await table.events("acme") == [2]
    with pytest.raises(OutsideReplayWindow):
        await table.streams.read("acme", after=before.high, limit=1, max_bytes=1)


async def test_a_relay_that_was_replaced_appends_nothing_more(table: SealingTable) -> None:
    await table.draft("acme", 1)
    await table.sealing.seal()
    newer = table.another(8)
    await table.draft("acme", 2)
    await newer.seal()
    await table.draft("acme", 3)
    await table.sealing.seal()
    table.clock.advance(seconds=120)
    await table.sealing.seal()
    assert table.sealing.counters()["sealing.moved_on"] == 2
    assert await table.streams.waiting() == {"acme": 1}
    await newer.seal()
    assert await table.events("acme") == [1, 2, 3]


async def test_a_backlog_of_a_loud_tenant_does_not_keep_a_quiet_one_waiting(table: SealingTable) -> None:
    order: list[str] = []

    def note(tenant: str, entries: list[StreamEntry], _position: Position) -> None:
        order.extend([tenant] * len(entries))

    for tenant in ("acme", "globex"):
        table.signing.make(tenant)
    await table.draft("acme", *range(500))
    await table.draft("globex", 1)
    table.sealing._appended = note  # type: ignore[assignment]
    await table.sealing.seal()
    assert order.index("globex") < 200 and order.count("acme") == 500
    assert await table.events("acme") == list(range(500))
