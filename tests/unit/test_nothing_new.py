"""The answer of most pulls, made once and reused as long as it is true."""

from __future__ import annotations

from services.registry.reads.unchanged_cache import UnchangedCache
from snavio.clock import ManualClock
from snavio.domain.directory import Draft, Tenant
from snavio.v1.registry_pb2 import ChangesRequest, ChangesResponse
from tests.support.memory_directory import MemoryDirectory


def asking(directory: MemoryDirectory, instance: str = "") -> ChangesRequest:
    epoch, version = directory.standing
    return ChangesRequest(since_version=version, directory_epoch=epoch, instance=instance)


async def test_who_knows_everything_is_told_so_and_after_a_write_asked_on() -> None:
    clock = ManualClock()
    directory = MemoryDirectory(clock=clock)
    known = UnchangedCache(directory, clock)
    await directory.write(lambda _view: Draft(Tenant("acme")), actor="test")
    before = asking(directory)
    answer = ChangesResponse.FromString(known.answer(before) or b"")
    assert (answer.directory_epoch, answer.version, answer.more) == (*directory.standing, False)
    await directory.write(lambda _view: Draft(Tenant("rival")), actor="test")
    assert known.answer(before) is None
    assert known.answer(asking(directory)) is not None
    assert known.answer(asking(directory, "fast-0")) == known.answer(asking(directory, "fast-1"))


async def test_every_answer_says_what_time_it_is_at_registry() -> None:
    clock = ManualClock()
    directory = MemoryDirectory(clock=clock)
    known = UnchangedCache(directory, clock)
    await directory.write(lambda _view: Draft(Tenant("acme")), actor="test")
    for _ in range(2):
        answer = ChangesResponse.FromString(known.answer(asking(directory)) or b"")
        assert (answer.version, answer.now_unix_ns) == (directory.standing[1], clock.unix_ns())
        clock.advance(seconds=7)


async def test_another_epoch_another_version_or_a_limit_are_not_answered_from_memory() -> None:
    clock = ManualClock()
    directory = MemoryDirectory(clock=clock)
    known = UnchangedCache(directory, clock)
    await directory.write(lambda _view: Draft(Tenant("acme")), actor="test")
    epoch, version = directory.standing
    for request in (
        ChangesRequest(),
        ChangesRequest(since_version=version, directory_epoch=epoch + 1),
        ChangesRequest(since_version=version + 1, directory_epoch=epoch),
        ChangesRequest(since_version=version, directory_epoch=epoch, limit=1),
    ):
        assert known.answer(request) is None
    before = asking(directory)
    await directory.renew_epoch()
    assert known.answer(before) is None
