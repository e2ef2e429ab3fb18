"""`Producer(obey=True)` against a Shield that limits, and with a clock that is wrong."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest
from snavio.native import Judgement, format_timestamp
from snavio.v1.batch_pb2 import VERDICT_RATE_LIMIT_EXCEEDED, Refusal, Verdicts
from tests.integration.test_producer import NAME, TARGET, producer_of
from tests.support.hostile_gateway import hostile_gateway, serve
from tests.support.neighbours import eventually
from tests.support.scripted import Script, Stage, stage

SECOND = 1_000_000_000


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as staged:
        yield staged


class WrongClock(SystemClock):
    """This machine's clock, off by `by_s`."""

    by_s = 0.0

    def unix_ns(self) -> int:
        return super().unix_ns() + round(self.by_s * 1e9)


def limited(for_s: float) -> Script:
    """Everything is refused until a time."""

    def script(judgement: Judgement) -> list[bytes]:
        refusal = Refusal(
            index=0,
            reason=VERDICT_RATE_LIMIT_EXCEEDED,
            throttle_until_unix_ns=time.time_ns() + round(for_s * 1e9),
        )
        codes = bytes([VERDICT_RATE_LIMIT_EXCEEDED]) * judgement.ledger.count
        seq = judgement.ledger.batch_seq
        return [Verdicts(batch_seq=seq, codes=codes, refusal=[refusal], final=True).SerializeToString()]

    return script


async def test_it_waits_until_the_time_that_shield_named(scripted: Stage) -> None:
    scripted.shield.scripts.append(limited(0.5))
    async with producer_of(scripted, obey=True, timeout_s=60.0) as producer:
        begun = time.monotonic()
        outcome = await producer.send(TARGET, NAME, b"")
        assert (outcome.verdict, outcome.attempts) == (Verdict.DELIVERED, 2)
        assert time.monotonic() - begun >= 0.5
        assert producer.obeyed["throttled"] == 1


async def test_nothing_is_sent_meanwhile_on_that_route_and_everything_on_others(scripted: Stage) -> None:
    scripted.shield.scripts.append(limited(600.0))
    async with producer_of(scripted, obey=True) as producer:
        first = await producer.send(TARGET, NAME, b"")
        assert (first.verdict, first.attempts) == (Verdict.RATE_LIMIT_EXCEEDED, 1)
        again = await producer.send(TARGET, NAME, b"", timeout_s=5.0)
        assert (again.verdict, again.attempts) == (Verdict.RATE_LIMIT_EXCEEDED, 0)
        assert 590_000 < again.retry_after_ms <= 600_001
        assert scripted.shield.batches == [1], "Shield was not asked again"
        commands = [
            (TARGET, NAME, b""),
            (TARGET, "another", b""),
            (TARGET, NAME, b""),
            (TARGET, "another", b""),
        ]
        outcomes = await producer.send_batch(commands)
        assert [outcome.delivered for outcome in outcomes] == [False, True, False, True]
        assert outcomes.delivered == 2 and len({outcome.command_id for outcome in outcomes}) == 4
        with pytest.raises(BadRequest):
            await producer.send_batch([*commands, ("no target", NAME, b"")])
        assert sum(scripted.shield.batches) == 3


async def test_a_clock_that_is_wrong_at_the_start_is_corrected_and_told(scripted: Stage) -> None:
    clock = WrongClock()
    clock.by_s = -120.0
    async with producer_of(scripted, clock=clock, max_attempts=1) as producer:
        assert (await producer.send(TARGET, NAME, b"")).verdict is Verdict.TIMESTAMP_OUTSIDE_WINDOW
    async with producer_of(scripted, clock=clock, max_attempts=1, obey=True) as producer:
        assert (await producer.send(TARGET, NAME, b"")).delivered
        assert 118 < producer.corrected_by_s < 122
        assert producer.obeyed["corrected"] == 1


async def test_a_clock_that_jumps_is_corrected_by_what_the_refusal_says(scripted: Stage) -> None:
    clock = WrongClock()
    async with producer_of(scripted, clock=clock, obey=True) as producer:
        assert (await producer.send(TARGET, NAME, b"")).attempts == 1
        clock.by_s = 100.0
        outcome = await producer.send(TARGET, NAME, b"")
        assert (outcome.verdict, outcome.attempts) == (Verdict.DELIVERED, 2)
        assert -102 < producer.corrected_by_s < -98
        clock.by_s = 0.0
        assert (await producer.send(TARGET, NAME, b"")).delivered
        assert producer.corrected_by_s == 0.0


async def test_a_clock_beyond_the_bound_stays_as_it_is(scripted: Stage) -> None:
    clock = WrongClock()
    clock.by_s = -400.0
    async with producer_of(scripted, clock=clock, obey=True) as producer:
        assert (await producer.send(TARGET, NAME, b"")).verdict is Verdict.TIMESTAMP_OUTSIDE_WINDOW
        assert producer.corrected_by_s == 0.0
        assert producer.obeyed["skew_refused"] >= 1


async def test_what_is_for_obedience_is_refused_without_it(scripted: Stage) -> None:
    with pytest.raises(BadRequest):
        producer_of(scripted, gateway="127.0.0.1:1")


def event(name: str, **fields: object) -> dict[str, object]:
    return {"event": name, "source": "acme/billing", **fields}


async def test_it_does_what_the_signed_events_of_its_source_ask_for(scripted: Stage) -> None:
    until = format_timestamp(time.time_ns() + 600 * SECOND)
    told = [
        event("snavio.secret.key_expiry_imminent", version_id="hmac-v1"),
        event("snavio.fairness.warm-path-ban", target=TARGET, throttle_until=until, **{"command.name": NAME}),
        {
            **event("snavio.fairness.warm-path-ban", target="other"),
            "source": "acme/bot",
            "throttle_until": until,
        },
    ]
    async with hostile_gateway(scripted.authority.mesh("gateway")) as gateway:
        maker = gateway.maker
        scripted.signer.public_keys = maker.keys
        body = maker.next(payload={"source": "acme/billing", "events": told})
        forged = body.replace(b"discord-bot", b"another-bot")
        gateway.scripts = [serve((maker.seq, forged), stays=False), serve((maker.seq, body))]
        async with producer_of(scripted, obey=True, gateway=gateway.address) as producer:
            await eventually(lambda: producer.obeyed["throttled"] == 1)
            outcome = await producer.send(TARGET, NAME, b"", timeout_s=5.0)
            assert (outcome.verdict, outcome.attempts) == (Verdict.FAIRNESS_VIOLATION, 0)
            assert (await producer.send("another-bot", NAME, b"")).delivered
            await eventually(lambda: scripted.signer.asked >= 2)
            assert producer.obeyed["keys_asked"] == 1


async def test_a_gateway_that_is_away_keeps_nobody_from_sending(scripted: Stage) -> None:
    async with producer_of(scripted, obey=True, gateway="127.0.0.1:1") as producer:
        assert (await producer.send(TARGET, NAME, b"")).delivered
