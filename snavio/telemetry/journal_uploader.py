"""Uploads a journal to Relay: pages in order over one stream, at most a second late, dropped once durable there.

Never blocks the service: while Relay is away the journal waits within its bounds, and the numbers show what it drops.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc
import structlog

from snavio.clock import Clock
from snavio.domain.chunks import JOURNAL_PAGE, in_chunks
from snavio.domain.varint import varint
from snavio.errors import SnavioError, Unavailable
from snavio.host.background import background
from snavio.ports.journal_mark import EndedLife, JournalMark
from snavio.rpc.channel import MeshChannel
from snavio.rpc.limits import PUBLIC_FRAME_BYTES
from snavio.rpc.status import error_of
from snavio.telemetry.journal import Journal
from snavio.v1.relay_pb2 import JournalPage, JournalReceipt

METHOD: Final = "/snavio.v1.Relay/Append"
FLUSH_SECONDS: Final = 1.0
# Enough to be worth a call; a full page is sent without waiting for the second to end.
PAGE_BYTES: Final = 512 << 10
PAGES_IN_FLIGHT: Final = 4
RECEIPT_SECONDS: Final = 30.0
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
LAST_FLUSH_SECONDS: Final = 3.0
_BLOCK_TAG: Final = b"\x22"

Gather = Callable[[], Iterable[bytes]]
"""Blocks that are made on demand, such as the counts of a flood."""


class JournalUploader:
    """Used on one event loop, as the journal is."""

    def __init__(
        self,
        journal: Journal,
        *,
        relay: MeshChannel,
        instance: str,
        epoch: int,
        clock: Clock,
        mark: JournalMark | None = None,
        gather: Gather = lambda: (),
    ) -> None:
        self._journal = journal
        self._relay = relay
        self._instance = instance
        self._epoch = epoch
        self._clock = clock
        self._mark = mark
        self._gather = gather
        self._durable_seq = 0
        self._received_unix_ns = 0
        self._enough = asyncio.Event()
        self._receipt = asyncio.Event()
        self._stopping = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._pages = 0
        self._reconnects = 0
        self._log = structlog.get_logger()
        self.connected = asyncio.Event()

    @property
    def started(self) -> bool:
        """True once `start` was called."""
        return self._task is not None

    def start(self) -> None:
        """Upload until `stop`."""
        self._journal.full_enough = self._look
        self._task = background().keep("journal courier", self._run)

    async def stop(self) -> None:
        """Upload the rest, if Relay accepts it in time, then end."""
        if self._task is None:
            return
        self._stopping.set()
        self._enough.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH_SECONDS):
                await asyncio.wait({self._task})
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def durable(self, seq: int, *, within_s: float) -> bool:
        """True once Relay has stored everything up to `seq`; False if it has not `within_s`. Uploads at once."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((seq, waiter))
        self._enough.set()
        self._settle_waiters()
        await asyncio.wait({waiter}, timeout=within_s)
        self._waiters = [each for each in self._waiters if each[1] is not waiter]
        return waiter.done()

    def _settle_waiters(self) -> None:
        for seq, waiter in self._waiters:
            if seq <= self._durable_seq and not waiter.done():
                waiter.set_result(None)

    def counters(self) -> dict[str, int]:
        """Pages uploaded, and streams opened."""
        return {"pages": self._pages, "reconnects": self._reconnects}

    def _look(self, ready_bytes: int) -> None:
        if ready_bytes >= PAGE_BYTES:
            self._enough.set()

    async def _run(self) -> None:
        trial = background().trial("journal courier")
        pause = FIRST_PAUSE_S
        while True:
            before = self._durable_seq
            try:
                await self._carry()
            except (SnavioError, grpc.aio.AioRpcError, TimeoutError) as error:
                told = error_of(error) if isinstance(error, grpc.aio.AioRpcError) else error
                self._log.debug("relay is away", message=str(told))
                trial.succeeded()
            except Exception as error:
                # An unreadable receipt or a page that cannot be made: later pages must still be uploaded.
                trial.failed(error)
            else:
                trial.succeeded()
            finally:
                self.connected.clear()
            if self._stopping.is_set():
                return
            self._reconnects += 1
            pause = FIRST_PAUSE_S if self._durable_seq > before else min(LONGEST_PAUSE_S, pause * 2)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):  # noqa: S311 spreads load
                    await self._stopping.wait()

    async def _carry(self) -> None:
        """One stream, until it breaks, the certificate is renewed, or the uploader stops."""
        generation = self._relay.generation()
        stream = self._relay.stream(METHOD)
        try:
            async with asyncio.timeout(RECEIPT_SECONDS):
                await self._open(stream)
            self.connected.set()
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(stream))
                await self._write(stream, generation)
                reader.cancel()
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        finally:
            stream.cancel()

    async def _open(self, stream: Any) -> None:
        receipt = await self._exchange(stream, JournalPage(instance=self._instance, epoch=self._epoch))
        self._journal.give_back()
        self._acknowledge(receipt)
        ended = list(self._mark.ended()) if self._mark is not None else []
        for life in ended:
            await self._send_kept(stream, life)
        if ended:
            lives = [JournalPage.Ended(epoch=life.epoch, last_seq=life.last_seq) for life in ended]
            await self._exchange(stream, JournalPage(instance=self._instance, epoch=self._epoch, ended=lives))
            assert self._mark is not None
            self._mark.closed([life.epoch for life in ended])

    async def _send_kept(self, stream: Any, life: EndedLife) -> None:
        for seq, block in life.kept:
            page = JournalPage(instance=self._instance, epoch=life.epoch, first_seq=seq)
            receipt = await self._exchange(stream, page, [block])
            if self._mark is not None:
                self._mark.settled(life.epoch, receipt.durable_seq)

    async def _exchange(self, stream: Any, page: JournalPage, blocks: Iterable[bytes] = ()) -> JournalReceipt:
        await _write_page(stream, page, blocks)
        return _receipt(await stream.read())

    async def _read(self, stream: Any) -> None:
        while True:
            self._acknowledge(_receipt(await stream.read()))

    def _acknowledge(self, receipt: JournalReceipt) -> None:
        if receipt.epoch != self._epoch:
            return
        if receipt.durable_seq > self._durable_seq:
            self._durable_seq = receipt.durable_seq
            self._received_unix_ns = self._clock.unix_ns()
        self._journal.acknowledge(self._durable_seq)
        if self._mark is not None:
            self._mark.settled(self._epoch, self._durable_seq)
        self._receipt.set()
        self._settle_waiters()

    async def _write(self, stream: Any, generation: int) -> None:
        in_flight: list[int] = []
        while self._relay.generation() == generation:
            if not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_SECONDS):
                        await self._enough.wait()
            self._enough.clear()
            try:
                for block in self._gather():
                    self._journal.append(block)
            except Exception as error:
                # A failure of the counts beside the journal must not stop the journal itself.
                background().failed("journal courier", error)
            self._journal.tell_losses(
                now_unix_ns=self._clock.unix_ns(), received_unix_ns=self._received_unix_ns
            )
            while True:
                in_flight = [seq for seq in in_flight if seq > self._durable_seq]
                if len(in_flight) >= PAGES_IN_FLIGHT:
                    await self._settled_to(in_flight[0])
                    continue
                blocks = self._journal.take(max_bytes=PAGE_BYTES)
                if not blocks:
                    break
                page = JournalPage(instance=self._instance, epoch=self._epoch, first_seq=blocks[0].first_seq)
                await _write_page(stream, page, (block.columns for block in blocks))
                self._pages += 1
                in_flight.append(blocks[-1].last_seq)
                # New blocks wait for their second to end, or until they fill a page.
                if self._journal.ready_bytes < PAGE_BYTES and not self._stopping.is_set():
                    break
            if self._stopping.is_set():
                await self._settled_to(self._journal.last_seq)
                return

    async def _settled_to(self, seq: int) -> None:
        async with asyncio.timeout(RECEIPT_SECONDS):
            while self._durable_seq < seq:
                self._receipt.clear()
                await self._receipt.wait()


async def _write_page(stream: Any, page: JournalPage, blocks: Iterable[bytes]) -> None:
    # A block can be larger than a frame: a batch with a route for each command has all of their names.
    for frame in in_chunks(with_blocks(page, blocks), PUBLIC_FRAME_BYTES, JOURNAL_PAGE):
        await stream.write(frame)


def with_blocks(page: JournalPage, blocks: Iterable[bytes]) -> bytes:
    """The page with serialised blocks appended: parsing and serialising them again would cost CPU."""
    parts = [page.SerializeToString()]
    for block in blocks:
        parts += [_BLOCK_TAG, varint(len(block)), block]
    return b"".join(parts)


def _receipt(message: Any) -> JournalReceipt:
    if message is grpc.aio.EOF:
        raise Unavailable("Relay has ended the stream.", reason="stream-ended")
    receipt: JournalReceipt = JournalReceipt.FromString(message)
    return receipt
