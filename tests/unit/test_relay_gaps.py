"""Event numbers decide what a page adds: nothing twice, and no loss unreported."""

from __future__ import annotations

import pytest

from services.relay.export_plan import MAX_FILE_EVENTS, ExportSchedule, due, portions
from services.relay.gaps import HEARD_NS, Addition, Lives, add
from snavio.errors import BadRequest
from snavio.ports.outbox import JournalLife, PageInfo
from tests.support.telemetry import NOW, arrival, block

KEY = ("fast-0", 7)
FIVE = block([1] * 5)
SECOND = 1_000_000_000


def known(durable: int, *, epoch: int = 7, closed: bool = False) -> Lives:
    return {("fast-0", epoch): JournalLife("fast-0", epoch, "fast", durable, closed, heard_unix_ns=NOW)}


def gaps(addition: Addition) -> list[tuple[int | None, str]]:
    return [(gap.dropped_events, gap.reason) for gap in addition.gaps]


def test_a_first_page_begins_a_life() -> None:
    addition = add(arrival(FIVE, FIVE), {}, now_unix_ns=NOW)
    assert addition.lives[KEY].durable_seq == 10
    assert [(page.first_seq, page.last_seq, page.stored_unix_ns) for page in addition.pages] == [(1, 10, NOW)]
    assert addition.gaps == []


def test_a_page_that_comes_again_adds_nothing() -> None:
    addition = add(arrival(FIVE, FIVE), known(10), now_unix_ns=NOW)
    assert (addition.pages, addition.lives, addition.gaps) == ([], {}, [])


def test_a_writer_that_has_nothing_to_say_is_noted_once_a_day() -> None:
    later = NOW + 2 * HEARD_NS
    assert add(arrival(), known(10), now_unix_ns=NOW + HEARD_NS // 2).lives == {}
    noted = add(arrival(), known(10), now_unix_ns=later).lives
    assert noted[KEY].heard_unix_ns == later and noted[KEY].durable_seq == 10


def test_of_a_page_that_comes_again_in_part_the_rest_is_taken() -> None:
    addition = add(arrival(FIVE, FIVE), known(5), now_unix_ns=NOW)
    assert [(page.first_seq, page.last_seq) for page in addition.pages] == [(6, 10)]


def test_numbers_that_were_skipped_are_missing() -> None:
    addition = add(arrival(FIVE, first_seq=100), known(10), now_unix_ns=NOW)
    assert gaps(addition) == [(89, "overflow")]
    assert addition.gaps[0].detail == "fast-0 epoch 7: 11 to 99"
    assert addition.lives[KEY].durable_seq == 104


def test_a_block_that_is_half_known_contradicts_itself() -> None:
    with pytest.raises(BadRequest):
        add(arrival(FIVE), known(3), now_unix_ns=NOW)


def test_an_ended_life_tells_what_was_lost_with_it_once() -> None:
    ended = arrival(epoch=9, ended=[(7, 250)])
    addition = add(ended, known(200), now_unix_ns=NOW)
    assert gaps(addition) == [(50, "crash")]
    assert addition.lives[KEY] == JournalLife("fast-0", 7, "fast", 250, closed=True)
    assert gaps(add(ended, dict(addition.lives), now_unix_ns=NOW)) == []


def test_an_ended_life_that_relay_never_heard_of_is_lost_whole() -> None:
    assert gaps(add(arrival(epoch=9, ended=[(7, 30)]), {}, now_unix_ns=NOW)) == [(30, "crash")]
    assert gaps(add(arrival(epoch=9, ended=[(7, 0)]), {}, now_unix_ns=NOW)) == []


def test_a_life_that_ended_with_everything_received_leaves_no_gap() -> None:
    addition = add(arrival(epoch=9, ended=[(7, 200)]), known(200), now_unix_ns=NOW)
    assert (gaps(addition), addition.lives[KEY].closed) == ([], True)


def test_what_was_kept_of_an_ended_life_is_taken_and_the_rest_of_it_is_missing() -> None:
    kept = arrival(block([], events=[("x", {})]), first_seq=210, epoch=7, present=9)
    addition = add(kept, known(200), now_unix_ns=NOW)
    assert gaps(addition) == [(9, "crash")]
    assert addition.lives[KEY].durable_seq == 210


def test_a_life_whose_end_nobody_knows_is_told_as_such_once() -> None:
    first = arrival(FIVE, epoch=9)
    addition = add(first, known(200), now_unix_ns=NOW)
    assert gaps(addition) == [(None, "unknown")]
    assert gaps(add(first, {**known(200), **addition.lives}, now_unix_ns=NOW)) == []


def test_a_closed_life_takes_no_more() -> None:
    addition = add(arrival(FIVE, first_seq=201, present=9), known(200, closed=True), now_unix_ns=NOW)
    assert (addition.pages, addition.gaps) == ([], [])


def test_a_life_cannot_end_itself() -> None:
    with pytest.raises(BadRequest):
        add(arrival(epoch=9, ended=[(9, 5)]), {}, now_unix_ns=NOW)


# --- when pages are archived

RHYTHM = ExportSchedule(events=10_000, after_ns=30 * SECOND, few_after_ns=60 * SECOND)


def info(
    number: int, first: int, last: int, *, age_s: float = 0, instance: str = "fast-0", size: int = 100
) -> PageInfo:
    return PageInfo(number, instance, 7, "fast", first, last, NOW - round(age_s * SECOND), size)


@pytest.mark.parametrize(
    ("events", "age_s", "wanted"),
    [(10_000, 0, True), (9_999, 29, False), (9_999, 30, True), (999, 59, False), (999, 60, True)],
)
def test_enough_events_or_old_ones_are_due(events: int, age_s: float, wanted: bool) -> None:
    pages = [info(1, 1, events, age_s=age_s)]
    assert bool(due(pages, RHYTHM, now_unix_ns=NOW, stored_before_unix_ns=NOW)) is wanted


def test_pages_that_revocations_may_concern_wait() -> None:
    pages = [info(1, 1, 20_000, age_s=2), info(2, 20_001, 40_000, age_s=0)]
    found = due(pages, RHYTHM, now_unix_ns=NOW, stored_before_unix_ns=NOW - SECOND)
    assert [page.page_id for page in found] == [1]


def test_a_file_holds_consecutive_numbers_of_one_life() -> None:
    pages = [
        info(3, 21, 30),
        info(1, 1, 10),
        info(2, 11, 20),
        info(4, 41, 50),
        info(5, 1, 9, instance="slow-0"),
    ]
    names = [portion.stretch.file_name for portion in portions(pages)]
    assert names == ["fast-0-7-1-30.parquet", "fast-0-7-41-50.parquet", "slow-0-7-1-9.parquet"]


def test_files_have_a_largest_size() -> None:
    half = MAX_FILE_EVENTS // 2 + 1
    pages = [info(number, 1 + number * half, (number + 1) * half) for number in range(3)]
    assert [portion.stretch.rows for portion in portions(pages)] == [half, half, half]
