"""A journal numbers every event, stays within its bounds, and drops only what Relay has or the oldest when full."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from snavio.adapters.embedded.journal_files import MAX_ENDED, FileJournalMark
from snavio.errors import StateError
from snavio.native import format_timestamp
from snavio.ports.journal_mark import EndedLife
from snavio.telemetry.events import LegacyKeyUsed
from snavio.telemetry.journal import Block, Journal
from snavio.telemetry.schema import DROPPED
from snavio.v1.telemetry_pb2 import TelemetryBlock
from tests.support.telemetry import NOW, SOURCE, block

EVENT = LegacyKeyUsed("hmac-v1", SOURCE, None)


def rows(count: int) -> bytes:
    written: bytes = block([1] * count).SerializeToString()
    return written


def numbers(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    return [(each.first_seq, each.last_seq) for each in blocks]


def test_events_are_numbered_without_gaps() -> None:
    journal = Journal(service="fast")
    journal.append(rows(3))
    journal.append(b"")
    journal.record(EVENT, at_unix_ns=5)
    journal.append(rows(2))
    taken = journal.take(max_bytes=1 << 20)
    assert numbers(taken) == [(1, 3), (4, 4), (5, 6)]
    told = TelemetryBlock.FromString(taken[1].columns)
    assert (told.service, told.event[0].name, told.event[0].at_unix_ns) == ("fast", EVENT.name, 5)


def test_what_is_taken_comes_again_unless_it_is_acknowledged() -> None:
    journal = Journal()
    for _ in range(4):
        journal.append(rows(10))
    size = len(rows(10))
    assert numbers(journal.take(max_bytes=2 * size)) == [(1, 10), (11, 20)]
    assert numbers(journal.take(max_bytes=1)) == [(21, 30)]
    journal.acknowledge(10)
    journal.give_back()
    assert numbers(journal.take(max_bytes=1 << 20)) == [(11, 20), (21, 30), (31, 40)]
    journal.acknowledge(40)
    journal.give_back()
    assert journal.take(max_bytes=1 << 20) == []
    assert journal.gauges() == {"waiting_bytes": 0.0, "waiting_rows": 0.0}


@pytest.mark.parametrize("bound", [{"max_bytes": 3 * len(rows(10))}, {"max_events": 30}])
def test_a_full_journal_drops_the_oldest_and_counts_it(bound: dict[str, Any]) -> None:
    journal = Journal(**bound)
    for _ in range(5):
        journal.append(rows(10))
    assert numbers(journal.take(max_bytes=1 << 20)) == [(21, 30), (31, 40), (41, 50)]
    assert journal.counters() == {"rows": 50, "dropped_rows": 20}


def test_what_made_room_is_told_by_tenant_once_there_is_room() -> None:
    journal = Journal(service="fast", max_events=40)
    journal.record(EVENT, at_unix_ns=1_000_000_000)
    for _ in range(5):
        journal.append(rows(10))
    journal.tell_losses(now_unix_ns=NOW, received_unix_ns=0)
    assert journal.last_seq == 51  # not yet: it would cost others their place
    journal.acknowledge(51)
    journal.tell_losses(now_unix_ns=NOW, received_unix_ns=NOW - 5)
    journal.tell_losses(now_unix_ns=NOW, received_unix_ns=NOW)
    (block,) = journal.take(max_bytes=1 << 20)
    (told,) = TelemetryBlock.FromString(block.columns).event
    assert told.name == DROPPED
    assert orjson.loads(told.fields) == {
        "tenant": "acme",
        "dropped_events": 11,
        "reason": "journal_overflow",
        "queue_age_seconds": (NOW - 1_000_000_000) / 1e9,
        "last_received_at": format_timestamp(NOW - 5),
    }


def test_news_of_a_loss_that_is_lost_itself_is_told_again() -> None:
    journal = Journal(max_events=10)
    for _ in range(3):
        journal.append(rows(10))
    journal.acknowledge(30)
    journal.tell_losses(now_unix_ns=NOW, received_unix_ns=0)
    journal.append(rows(10))
    journal.acknowledge(41)
    journal.tell_losses(now_unix_ns=NOW, received_unix_ns=0)
    (block,) = journal.take(max_bytes=1 << 20)
    (told,) = TelemetryBlock.FromString(block.columns).event
    assert orjson.loads(told.fields)["dropped_events"] == 20


def test_a_journal_that_is_off_holds_nothing() -> None:
    journal = Journal(on=False)
    journal.append(rows(1))
    journal.record(EVENT, at_unix_ns=1)
    assert (journal.take(max_bytes=1 << 20), journal.last_seq) == ([], 0)


# --- what survives the process


def mark(folder: Path, epoch: int) -> FileJournalMark:
    return FileJournalMark(folder, instance="fast-0", epoch=epoch)


def test_a_killed_life_is_told_by_the_next_one_until_it_is_closed(tmp_path: Path) -> None:
    first = mark(tmp_path, 1)
    assert first.ended() == []
    journal = Journal(mark=first)
    journal.append(rows(70))
    first.close()  # Writes nothing: a kill leaves the same behind.
    for epoch in (2, 3):
        later = mark(tmp_path, epoch)
        assert EndedLife(1, 70) in later.ended()
        later.close()
    last = mark(tmp_path, 4)
    assert list(last.ended()) == [EndedLife(1, 70), EndedLife(2, 0), EndedLife(3, 0)]
    last.closed([1, 2, 3])
    last.close()
    assert list(mark(tmp_path, 5).ended()) == [EndedLife(4, 0)]


def test_an_audit_event_is_kept_until_it_is_settled(tmp_path: Path) -> None:
    first = mark(tmp_path, 1)
    journal = Journal(mark=first)
    journal.append(rows(9))
    journal.record(EVENT, at_unix_ns=5, durable=True)
    first.close()
    second = mark(tmp_path, 2)
    (life,) = second.ended()
    assert (life.epoch, life.last_seq, [seq for seq, _ in life.kept]) == (1, 10, [10])
    assert TelemetryBlock.FromString(life.kept[0][1]).event[0].name == EVENT.name
    second.settled(1, 10)
    second.close()
    (life, _) = mark(tmp_path, 3).ended()
    assert life.kept == ()


def test_damaged_files_are_taken_for_nothing(tmp_path: Path) -> None:
    first = mark(tmp_path, 1)
    Journal(mark=first).record(EVENT, at_unix_ns=5, durable=True)
    first.close()
    kept = tmp_path / "fast-0.journal-kept"
    whole = kept.read_bytes()
    for damaged in (whole + whole[:-9], b"\xff\n" + whole, whole + b"00000000 1 2 x\n"):
        kept.write_bytes(damaged)
        again = mark(tmp_path, 2)
        assert [seq for life in again.ended() for seq, _ in life.kept] == [1]
        again.closed([2])
        again.close()
    for name in ("fast-0.journal", "fast-0.journal-ended", "fast-0.journal-kept"):
        (tmp_path / name).write_bytes(b"rubbish")
    assert mark(tmp_path, 9).ended() == []


def test_a_second_process_of_the_same_name_is_refused(tmp_path: Path) -> None:
    first = mark(tmp_path, 1)
    with pytest.raises(StateError, match="in use"):
        mark(tmp_path, 2)
    first.close()


def test_ended_lives_are_bounded(tmp_path: Path) -> None:
    for epoch in range(1, MAX_ENDED + 5):
        mark(tmp_path, epoch).close()
    assert len(mark(tmp_path, 1000).ended()) == MAX_ENDED
