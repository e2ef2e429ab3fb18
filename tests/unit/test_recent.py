"""The last commands of a process: bounded however many come, and looked up by id alone."""

from __future__ import annotations

from itertools import islice

from snavio.telemetry.recent_commands import MAX_BLOCKS, RecentCommands, rows_about
from snavio.v1.telemetry_pb2 import TelemetryBlock


def block(*numbers: int, at: int = 1) -> bytes:
    ids = b"".join(number.to_bytes(16) for number in numbers)
    told: bytes = TelemetryBlock(command_id=ids, settled_unix_ns=at).SerializeToString()
    return told


def found(recent: RecentCommands, number: int, *, limit: int = 10) -> list[tuple[int, int]]:
    seen = list(islice(rows_about(recent.kept(), number.to_bytes(16)), limit))[::-1]
    return [(each.block.settled_unix_ns, each.row) for each in seen]


def test_it_never_grows_beyond_its_bytes_and_the_oldest_make_room() -> None:
    recent = RecentCommands(max_bytes=100_000)
    for at in range(1, 2001):
        recent.keep(block(*range(at * 100, at * 100 + 20), at=at))
        assert recent.gauges()["bytes"] <= 100_000
    kept = int(recent.gauges()["blocks"])
    assert 100 < kept < 400
    assert recent.oldest_unix_ns() == 2000 - kept + 1
    assert found(recent, 200_007) == [(2000, 7)]
    assert found(recent, 107) == []


def test_small_blocks_are_bounded_in_number_too() -> None:
    recent = RecentCommands(max_bytes=1 << 30)
    small = block(1)
    for _ in range(MAX_BLOCKS + 10):
        recent.keep(small)
    assert recent.gauges()["blocks"] == MAX_BLOCKS


def test_nothing_is_kept_where_nothing_may_be() -> None:
    recent = RecentCommands(max_bytes=0)
    recent.keep(block(1))
    recent.keep(b"")
    assert (recent.kept(), recent.oldest_unix_ns()) == ((), 0)


def test_of_too_many_rows_the_newest_are_told_oldest_first() -> None:
    recent = RecentCommands(max_bytes=1 << 20)
    for at in range(1, 8):
        recent.keep(block(5, 6, 5, at=at))
    assert found(recent, 5, limit=3) == [(6, 2), (7, 0), (7, 2)]


def test_an_id_that_only_stands_between_two_others_is_not_found() -> None:
    recent = RecentCommands(max_bytes=1 << 20)
    recent.keep(block(1 << 64, 2))
    between = ((1 << 64).to_bytes(16) + (2).to_bytes(16))[8:24]
    assert found(recent, int.from_bytes(between)) == []


def test_what_is_looked_at_does_not_change_while_more_is_kept() -> None:
    recent = RecentCommands(max_bytes=1 << 20)
    recent.keep(block(1))
    kept = recent.kept()
    recent.keep(block(2))
    assert (len(kept), len(recent.kept())) == (1, 2)
