"""A thousand warm commands cost Python as many calls as ten: per batch, and never per command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

from services.fast.bans import WarmBans
from services.fast.directory import CachedDirectory
from services.fast.dispatch import Dispatcher
from services.fast.grants import GrantKeeper
from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.native import Dispatch, read_verdicts
from snavio.ports.queue import BatchPart, TargetQueue
from snavio.telemetry.journal import Journal
from snavio.telemetry.recent_commands import RecentCommands, rows_about
from snavio.v1.batch_pb2 import Verdicts
from tests.support.frames import NAME, SOURCE, TARGET, TOPIC, RunOf, batch, command

ID = "0190c1e0-0000-7000-8000-000000000001"


class Delivering:
    """Accepts everything at once."""

    def put(self, batch_part: BatchPart) -> None:
        codes = bytes([Verdict.DELIVERED]) * batch_part.count
        batch_part.settle(0, read_verdicts(Verdicts(codes=codes, final=True).SerializeToString()))


class Fast:
    """The dispatch with its telemetry and the ring of `snavio explain`, without a wire."""

    def __init__(self) -> None:
        dispatch, clock = Dispatch(), ManualClock()
        dispatch.put_route(TARGET, NAME, queue=0, topic=TOPIC, profile=3, strict=False, limited=True)
        dispatch.allow(SOURCE, TARGET, NAME, 1)
        dispatch.renewed(clock.mono_ns())
        dispatch.grant(
            TARGET, NAME, permits=10_000, interval=1, ends_mono_ns=2**62, now_mono_ns=clock.mono_ns()
        )
        # Only the first batch that wants a permit says so; it is not the one that is counted.
        dispatch.plan(batch(RunOf([command()])), now_mono_ns=clock.mono_ns())
        self.recent = RecentCommands(max_bytes=1 << 20)
        journal = Journal(service="fast")
        journal.seen = self.recent.keep
        unused = cast(Any, None)
        self.dispatcher = Dispatcher(
            dispatch=dispatch,
            directory=cast(CachedDirectory, unused),
            grants=cast(GrantKeeper, unused),
            bans=cast(WarmBans, unused),
            queues=[cast(TargetQueue, Delivering())],
            slow=cast(TargetQueue, unused),
            journal=journal,
            clock=clock,
            budget_ms=5000,
        )

    def calls(self, frame: bytes) -> int:
        """Functions that Python enters, its own and those of extensions, until the batch is answered."""
        finals: list[bool] = []
        count = counting(lambda: self.dispatcher.take(frame, lambda _verdicts, final: finals.append(final)))
        assert finals == [True]
        return count


def counting(work: Callable[[], None]) -> int:
    count = 0

    def seen(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_a_thousand_warm_commands_cost_as_many_calls_as_ten() -> None:
    ten, thousand = (batch(RunOf([command() for _ in range(count)])) for count in (10, 1000))
    fast = Fast()
    fast.calls(ten)
    assert fast.calls(thousand) == fast.calls(ten)


def test_what_explain_looks_up_was_kept_on_that_way() -> None:
    fast = Fast()
    fast.calls(batch(RunOf([command() for _ in range(500)] + [command(command_id=ID)])))
    (seen,) = rows_about(fast.recent.kept(), bytes.fromhex(ID.replace("-", "")))
    assert seen.row == 500
