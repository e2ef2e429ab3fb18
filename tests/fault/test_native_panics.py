"""A panic at each native call of the hot path: every batch is answered, nothing leaks, and the service goes on.

Each call panics more often than a stream has places in its window, so that a place that leaked would stop the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.fast import dispatch_tables
from services.mailbox.intake import batch_intake as mailbox_intake
from services.shield import app as shield_app
from services.slow import arbitration as slow_arbitration
from snavio import native
from snavio.domain.verdict import Verdict
from snavio.hop import client, client_stream
from tests.integration import test_shield as shields
from tests.support import fast as fasts
from tests.support import slow as slows
from tests.support.mailbox import TOPIC, MailboxFixture, commands, running_mailbox, send_batch
from tests.support.panics import Double, Panics
from tests.support.wire import submission

GOOD = Verdict.DELIVERED
FAILED, UNKNOWN = Verdict.DELIVERY_FAILURE, Verdict.OUTCOME_UNKNOWN
TIMES = 20
"""More than the sixteen places of a window."""


@pytest.fixture
def panics(monkeypatch: pytest.MonkeyPatch) -> Panics:
    panics = Panics()
    for module, name in ((client, "batch_frame"), (client_stream, "read_verdicts")):
        monkeypatch.setattr(module, name, panics.function(name, getattr(module, name)))
    return panics


def constructor(panics: Panics, kind: Any) -> Any:
    return lambda *given, **named: Double(kind(*given, **named), panics)


# --- Shield


@pytest.fixture
async def shield(
    tmp_path: Path, panics: Panics, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[shields.Scene]:
    monkeypatch.setattr(shield_app, "Admission", constructor(panics, native.Admission))
    async with shields.shield(tmp_path) as scene:
        yield scene


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ({"Admission.judge"}, FAILED),
        ({"Ledger.opening"}, FAILED),
        ({"Judgement.accepted"}, FAILED),
        ({"Judgement.telemetry_closed"}, GOOD),
        ({"Ledger.merge"}, UNKNOWN),
        ({"Ledger.merge", "Ledger.close_part"}, UNKNOWN),
        ({"Ledger.merge", "Ledger.close_part", "Ledger.codes"}, UNKNOWN),
        ({"batch_frame"}, FAILED),
        ({"batch_frame", "Ledger.close_part"}, UNKNOWN),
    ],
    ids=lambda told: "+".join(sorted(told)) if isinstance(told, set) else "",
)
async def test_shield_answers_every_batch_whatever_panics(
    shield: shields.Scene, panics: Panics, calls: set[str], verdict: Verdict
) -> None:
    billing = shield.producer()
    stream = await billing.stream()
    panics.names = calls
    for seq in range(1, TIMES + 1):
        answer = await stream.ask(submission([billing.forge.command()] * 1, batch_seq=seq), seq)
        assert answer.codes == [verdict]
    assert panics.met >= TIMES
    panics.names = set()
    again = await stream.ask(submission([billing.forge.command()], batch_seq=99), 99)
    assert again.codes == [GOOD]


async def test_shield_tells_refusals_whatever_panics(shield: shields.Scene, panics: Panics) -> None:
    billing = shield.producer()
    stream = await billing.stream()
    panics.names = {"Judgement.telemetry"}
    for seq in range(1, TIMES + 1):
        # The second is a replay of the first, so there is something to tell at once.
        command = billing.forge.command()
        answer = await stream.ask(submission([command, command], batch_seq=seq), seq)
        assert answer.codes == [GOOD, Verdict.REPLAYED]
    panics.names = set()
    assert (await stream.ask(submission([billing.forge.command()], batch_seq=99), 99)).codes == [GOOD]


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [({"Admission.judge_one"}, FAILED), ({"Ledger.merge", "Ledger.close_part"}, UNKNOWN)],
)
async def test_a_unary_command_is_answered_whatever_panics(
    shield: shields.Scene, panics: Panics, calls: set[str], verdict: Verdict
) -> None:
    billing = shield.producer()
    panics.names = calls
    assert (await billing.submit(billing.forge.command())).codes == [verdict]
    panics.names = set()
    assert (await billing.submit(billing.forge.command())).codes == [GOOD]


async def test_shields_link_goes_on_after_answers_that_could_not_be_read(
    shield: shields.Scene, panics: Panics
) -> None:
    billing = shield.producer()
    stream = await billing.stream()
    panics.names = {"read_verdicts"}
    answer = await stream.ask(submission([billing.forge.command()], batch_seq=1), 1)
    assert answer.codes == [UNKNOWN]
    panics.names = set()
    assert (await stream.ask(submission([billing.forge.command()], batch_seq=2), 2)).codes == [GOOD]


# --- Fast


@pytest.fixture
async def fast(tmp_path: Path, panics: Panics, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[fasts.Scene]:
    monkeypatch.setattr(dispatch_tables, "Dispatch", constructor(panics, native.Dispatch))
    async with fasts.rivals(tmp_path) as scene:
        yield scene


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ({"Dispatch.plan"}, FAILED),
        ({"Plan.sends"}, FAILED),
        ({"Plan.stale_used"}, GOOD),
        ({"Ledger.opening"}, FAILED),
        ({"Plan.teaches"}, GOOD),
        ({"Ledger.merge"}, UNKNOWN),
        ({"Ledger.merge", "Ledger.close_part"}, UNKNOWN),
        ({"batch_frame"}, FAILED),
    ],
    ids=lambda told: "+".join(sorted(told)) if isinstance(told, set) else "",
)
async def test_fast_answers_every_batch_whatever_panics(
    fast: fasts.Scene, panics: Panics, calls: set[str], verdict: Verdict
) -> None:
    panics.names = calls
    for _ in range(TIMES):
        answer = await fast.send(2)
        assert answer.final and set(answer.codes) == ({verdict} if answer.codes else set())
        # Without codes it stands for the whole batch: nothing was delivered.
        assert answer.codes or verdict is FAILED
    assert panics.met >= TIMES
    panics.names = set()
    assert (await fast.send(2)).codes == [GOOD] * 2


# --- Slow


@pytest.fixture
async def slow(tmp_path: Path, panics: Panics, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[slows.Scene]:
    double = Double(native.Arbitration, panics, "Arbitration")
    monkeypatch.setattr(slow_arbitration, "Arbitration", double)
    async with slows.slow(tmp_path) as scene:
        yield scene


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ({"Arbitration.open"}, FAILED),
        ({"Ledger.opening"}, FAILED),
        ({"Arbitration.keys"}, FAILED),
        ({"Arbitration.undecided"}, FAILED),
        ({"Arbitration.dispatch"}, FAILED),
        ({"Arbitration.dispatch", "Arbitration.refuse"}, UNKNOWN),
        ({"Ledger.merge"}, UNKNOWN),
        ({"Ledger.merge", "Ledger.close_part"}, UNKNOWN),
        ({"Arbitration.telemetry"}, GOOD),
        ({"batch_frame"}, FAILED),
    ],
    ids=lambda told: "+".join(sorted(told)) if isinstance(told, set) else "",
)
async def test_slow_answers_every_batch_whatever_panics(
    slow: slows.Scene, panics: Panics, calls: set[str], verdict: Verdict
) -> None:
    slow.app.host.reporting.journal.seen = lambda *_: None
    panics.names = calls
    for _ in range(TIMES):
        answer = await slow.ask(*slow.commands(2))
        assert answer.final and set(answer.codes) == ({verdict} if answer.codes else set())
        assert answer.codes or verdict is FAILED
    assert panics.met >= TIMES or calls == {"Arbitration.telemetry"}
    panics.names = set()
    assert (await slow.ask(*slow.commands(2))).codes == [GOOD] * 2


async def test_a_panic_about_one_batch_costs_no_other_its_answer(slow: slows.Scene, panics: Panics) -> None:
    slow.mailbox.script = slow.mailbox.hold
    await slow.stream.send(slow.batch(*slow.commands(1)))
    first = slow.seq
    async with asyncio.timeout(30):
        while not slow.mailbox.held:
            await asyncio.sleep(0.01)
    panics.names = {"Arbitration.open"}
    assert (await slow.ask(*slow.commands(1))).codes in ([], [FAILED])
    panics.names = set()
    slow.mailbox.release()
    assert (await slow.stream.answer(first)).codes == [GOOD]


# --- the mailbox


@pytest.fixture
async def office(
    tmp_path: Path, panics: Panics, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MailboxFixture]:
    monkeypatch.setattr(mailbox_intake, "Sending", Double(native.Sending, panics, "Sending"))
    for name in ("slice_runs", "shard_of"):
        monkeypatch.setattr(mailbox_intake, name, panics.function(name, getattr(mailbox_intake, name)))
    async with running_mailbox(tmp_path) as one:
        yield one


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        ({"Sending.open"}, None),
        ({"Sending.topics"}, None),
        ({"shard_of"}, None),
        ({"Ledger.close"}, UNKNOWN),
        ({"Ledger.close", "Ledger.codes"}, None),
    ],
    ids=lambda told: "+".join(sorted(told)) if isinstance(told, set) else "",
)
async def test_the_mailbox_answers_every_batch_whatever_panics(
    office: MailboxFixture, panics: Panics, calls: set[str], code: Verdict | None
) -> None:
    sender = await office.sender()
    panics.names = calls
    for seq in range(1, TIMES + 1):
        answer = await sender.send(send_batch(seq, (TOPIC, commands(2))))
        # Without codes, nothing of it is stored.
        assert answer == (b"" if code is None else bytes([code]) * 2)
    assert panics.met >= TIMES
    panics.names = set()
    assert await sender.send(send_batch(99, (TOPIC, commands(2)))) == bytes([GOOD]) * 2
    stored = 2 if code is None else 2 * TIMES + 2
    assert (await office.consumer().stats())[TOPIC] == (stored, 0), (
        "room of what was not stored is free again"
    )


async def test_a_send_that_comes_again_is_answered_although_its_first_answer_failed(
    office: MailboxFixture, panics: Panics
) -> None:
    sender = await office.sender()
    panics.names = {"Ledger.close"}
    frame = send_batch(1, (TOPIC, commands(2)))
    assert await sender.send(frame) == bytes([UNKNOWN]) * 2
    panics.names = set()
    assert await sender.send(frame) == bytes([GOOD]) * 2, "it was stored, and that can be said now"
