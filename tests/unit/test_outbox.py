"""A write queue keeps the order, wakes its reader, and is empty only when everything was written."""

from __future__ import annotations

import asyncio

from snavio.hop.write_queue import WriteQueue


class Reader:
    """Writes what it finds, each when permitted."""

    def __init__(self, outbox: WriteQueue[int]) -> None:
        self.written: list[int] = []
        self.allowed = asyncio.Semaphore(0)
        self.task = asyncio.create_task(self._read(outbox))

    async def _read(self, outbox: WriteQueue[int]) -> None:
        while True:
            await outbox.filled()
            while outbox.items:
                await self.allowed.acquire()
                self.written.append(outbox.items[0])
                outbox.items.popleft()

    def let(self, count: int) -> None:
        for _ in range(count):
            self.allowed.release()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_is_put_before_and_after_a_lull_is_written_in_order() -> None:
    outbox: WriteQueue[int] = WriteQueue()
    outbox.put(1)
    reader = Reader(outbox)
    reader.let(10)
    await turns()
    outbox.put(2)
    outbox.put(3)
    await turns()
    assert reader.written == [1, 2, 3]
    reader.task.cancel()


async def test_it_is_not_empty_while_the_last_is_being_written() -> None:
    outbox: WriteQueue[int] = WriteQueue()
    outbox.put(1)
    outbox.put(2)
    emptied = asyncio.create_task(outbox.emptied())
    reader = Reader(outbox)
    reader.let(1)
    await turns()
    assert (reader.written, emptied.done()) == ([1], False)
    reader.let(1)
    async with asyncio.timeout(5):
        await emptied
    assert reader.written == [1, 2]
    reader.task.cancel()


async def test_who_gives_up_waiting_for_emptiness_disturbs_nobody() -> None:
    outbox: WriteQueue[int] = WriteQueue()
    outbox.put(1)
    reader = Reader(outbox)
    emptied = asyncio.create_task(outbox.emptied())
    await turns()
    emptied.cancel()
    reader.let(2)
    await turns()
    outbox.put(2)
    await turns()
    assert reader.written == [1, 2]
    reader.task.cancel()


async def test_putting_after_the_reader_has_gone_is_no_error() -> None:
    outbox: WriteQueue[int] = WriteQueue()
    reader = Reader(outbox)
    await turns()
    reader.task.cancel()
    await turns()
    outbox.put(1)
    assert list(outbox.items) == [1]
