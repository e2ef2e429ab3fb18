"""A batch that is given up while its stream is stuck gives its place back once, and its memory at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.hop.client import HopClient
from snavio.hop.client_stream import StreamListener
from snavio.hop.in_flight import BatchCarrier, ClientLimits
from snavio.native import Reply, read_verdicts
from snavio.v1.batch_pb2 import Batch, Run, Verdicts

BODY = Batch(run=[Run(source="acme/billing", command=[b"c" * 1000])]).SerializeToString()
SHORT_NS = 10_000_000


@dataclass(slots=True)
class Part:
    """A batch part that remembers what it was told."""

    deadline_mono_ns: int
    count: int = 1
    buffer: bytes = BODY
    source: str = "acme/billing"
    told: list[str] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return self.buffer

    def settle(self, offset: int, reply: Reply) -> None:
        self.told.append("settled")

    def lost(self, *, written: bool, cause: str) -> None:
        self.told.append(f"lost, {'' if written else 'not '}written")


class StuckStream(BatchCarrier):
    """Writes only what the test writes."""

    finished = False

    def end_half(self) -> None: ...

    def finish(self) -> None:
        self.finished = True


class NoConnection:
    trouble: Exception | None = None

    async def run(self, traffic: StreamListener) -> None:
        await asyncio.Event().wait()


async def until_told(part: Part) -> None:
    async with asyncio.timeout(10):
        while not part.told:
            await asyncio.sleep(0.005)


def client_of(clock: ManualClock) -> tuple[HopClient, StuckStream]:
    client = HopClient(NoConnection(), "test", clock=clock, limits=ClientLimits(window=2, eager=2))
    stream = StuckStream()
    client.opened(stream)
    return client, stream


async def sent(client: HopClient, part: Part) -> None:
    client.put(part)
    await asyncio.sleep(0)


async def test_retired_stream_waits_for_its_answer_though_a_batch_behind_it_was_given_up() -> None:
    clock = ManualClock()
    client, stream = client_of(clock)
    awaited, late = Part(2**62), Part(clock.mono_ns() + SHORT_NS)
    await sent(client, awaited)
    written = stream.outbox.items.popleft()
    assert written is not None and client.leaving(written)
    await sent(client, late)
    clock.advance(ns=SHORT_NS)
    await until_told(late)
    client.retire(stream, at_once=False)
    assert (late.told, stream.flying, stream.finished) == (["lost, not written"], 1, False)
    answer = Verdicts(batch_seq=written.seq, codes=bytes([Verdict.DELIVERED]), final=True)
    client.answered(read_verdicts(answer.SerializeToString()))
    assert (awaited.told, stream.flying, stream.finished) == (["settled"], 0, True)
    await client.close()


async def test_retired_stream_ends_though_all_of_its_batches_were_given_up_unwritten() -> None:
    clock = ManualClock()
    client, stream = client_of(clock)
    late = Part(clock.mono_ns() + SHORT_NS)
    await sent(client, late)
    clock.advance(ns=SHORT_NS)
    await until_told(late)
    client.retire(stream, at_once=False)
    assert (stream.flying, stream.finished) == (0, True)
    await client.close()


async def test_batches_given_up_behind_a_stuck_write_hold_no_memory() -> None:
    clock = ManualClock()
    client, stream = client_of(clock)
    for _ in range(10):
        late = Part(clock.mono_ns() + SHORT_NS)
        await sent(client, late)
        clock.advance(ns=SHORT_NS)
        await until_told(late)
    assert sum(len(each.frame or b"") for each in stream.outbox.items if each) == 0
    assert [client.leaving(each) for each in stream.outbox.items if each] == [None] * 10
    await client.close()
