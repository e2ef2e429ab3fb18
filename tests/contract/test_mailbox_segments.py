"""Segments of the mailbox's payloads are written, compacted and reclaimed, and no batch is lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from snavio.adapters.embedded import payload_compaction, payload_log
from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.payload_log import PayloadLocation, SegmentGone
from snavio.errors import IntegrityError, NotFound, Saturated, StateError, Unavailable
from snavio.ports.mailbox_store import KEY_BYTES, Keys, NewBatch, Origin, Send
from tests.support import segments as stores
from tests.support.segments import (
    KIB,
    SEGMENT,
    TOPIC,
    FaultyDisk,
    Reopened,
    append,
    keep_house,
    payload,
    segments,
    settle,
)

disk, opened = stores.disk, stores.opened


def test_one_commit_is_one_write_and_one_sync_whatever_it_holds(opened: Reopened, disk: FaultyDisk) -> None:
    store = opened()
    ids = append(store, *(payload(one, 100) for one in range(50)))
    assert len(disk.written) == len(disk.synced) == 1
    assert [store.read(TOPIC, one) for one in ids] == [payload(one, 100) for one in range(50)]


def test_more_payloads_than_the_system_takes_in_one_call_are_all_stored(opened: Reopened) -> None:
    store = opened()
    ids = append(store, *(payload(one, 8) for one in range(2500)))
    assert [store.read(TOPIC, one) for one in (ids[0], ids[1024], ids[-1])] == [
        payload(one, 8) for one in (0, 1024, 2499)
    ]


def test_segments_are_removed_once_everything_in_them_is_settled(opened: Reopened, tmp_path: Path) -> None:
    store = opened()
    ids = [batch_id for one in range(12) for batch_id in append(store, payload(one))]
    assert segments(tmp_path) == ["payload-1.seg", "payload-2.seg", "payload-3.seg"]
    settle(store, *ids[:8])
    assert len(segments(tmp_path)) == 3, "a commit removes nothing itself"
    keep_house(store)
    assert segments(tmp_path) == ["payload-3.seg"]
    assert [store.read(TOPIC, ids[one]) for one in range(8, 12)] == [payload(one) for one in range(8, 12)]


def test_spare_segment_is_written_over_and_its_old_bytes_are_never_read(
    opened: Reopened, tmp_path: Path
) -> None:
    store = opened(max_bytes=1 << 30)
    ids = [batch_id for one in range(8) for batch_id in append(store, payload(one))]
    settle(store, *ids[:4])
    keep_house(store)
    inode = (tmp_path / "payload-1.seg").stat().st_ino
    (fresh,) = append(store, payload(99))
    assert segments(tmp_path) == ["payload-2.seg", "payload-3.seg"]
    assert (tmp_path / "payload-3.seg").stat().st_ino == inode
    store = opened(max_bytes=1 << 30)
    assert store.read(TOPIC, fresh) == payload(99)
    with pytest.raises(NotFound):
        store.read(TOPIC, ids[0])


def test_backlog_leaves_the_systems_cache_but_for_its_latest_segments(
    opened: Reopened, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_log, "CACHED_SEGMENTS", 2)
    store = opened(max_bytes=1 << 30)
    ids = [batch_id for one in range(20) for batch_id in append(store, payload(one))]
    assert disk.uncached == [], "not on the way of a commit"
    keep_house(store)
    # Five segments: one is written, two stay.
    assert disk.uncached == ["payload-1.seg", "payload-2.seg"]
    assert [store.read(TOPIC, one) for one in ids] == [payload(one) for one in range(20)]
    keep_house(store)
    assert len(disk.uncached) == 2, "each once"


def test_only_a_segment_that_is_still_cached_is_kept_as_a_spare(
    opened: Reopened, disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_log, "CACHED_SEGMENTS", 2)
    store = opened(max_bytes=1 << 30)
    ids = [batch_id for one in range(20) for batch_id in append(store, payload(one))]
    keep_house(store)
    settle(store, *ids[:12])
    keep_house(store)
    # Of the three that are done, two are cold: to write over them would be to read them first.
    assert segments(tmp_path) == ["payload-3.seg", "payload-4.seg", "payload-5.seg"]
    inode = (tmp_path / "payload-3.seg").stat().st_ino
    append(store, payload(99))
    assert (tmp_path / "payload-6.seg").stat().st_ino == inode
    assert disk.uncached == ["payload-1.seg", "payload-2.seg"], "a spare stays cached"


def test_cache_that_takes_no_advice_harms_nobody(
    opened: Reopened, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_path: Path) -> None:
        raise OSError(22, "no advice here")

    monkeypatch.setattr(payload_log, "CACHED_SEGMENTS", 0)
    monkeypatch.setattr(disk, "uncache", refuses)
    store = opened()
    ids = [batch_id for one in range(8) for batch_id in append(store, payload(one))]
    keep_house(store)
    assert [store.read(TOPIC, one) for one in ids] == [payload(one) for one in range(8)]


def test_straggler_is_moved_out_of_a_segment_and_stays_readable(opened: Reopened, tmp_path: Path) -> None:
    store = opened()
    (straggler,) = append(store, payload(1, 4 * KIB))
    others = [batch_id for one in range(6) for batch_id in append(store, payload(one, 20 * KIB))]
    settle(store, *others[:3])
    keep_house(store)
    assert "payload-1.seg" not in segments(tmp_path)
    assert store.read(TOPIC, straggler) == payload(1, 4 * KIB)
    store = opened()
    assert store.read(TOPIC, straggler) == payload(1, 4 * KIB)
    assert [record.batch_id for record in store.pending(TOPIC, after=0, limit=9)] == [straggler, *others[3:]]


def test_compaction_goes_in_steps_and_a_batch_settled_meanwhile_stays_settled(
    opened: Reopened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_compaction, "STEP_ROWS", 2)
    store = opened()
    small = [batch_id for one in range(6) for batch_id in append(store, payload(one, KIB))]
    big = append(store, payload(7, 58 * KIB))
    append(store, payload(8))
    settle(store, *big)
    assert store.checkpoint()
    assert "payload-1.seg" in segments(tmp_path)
    assert [store.read(TOPIC, one) for one in small] == [payload(one, KIB) for one in range(6)]
    append_to_log = store._log.append

    def settled_meanwhile(payloads: Sequence[bytes]) -> object:
        settle(store, small[2])
        return append_to_log(payloads)

    with monkeypatch.context() as during:
        during.setattr(store._log, "append", settled_meanwhile)
        store.checkpoint()
    keep_house(store)
    assert "payload-1.seg" not in segments(tmp_path)
    with pytest.raises(NotFound):
        store.read(TOPIC, small[2])
    live = store._log.live()
    store = opened()
    assert {one: size for one, size in live.items() if size} == {
        one: size for one, size in store._log.live().items() if size
    }


def test_readers_are_not_disturbed_while_payloads_move(opened: Reopened) -> None:
    store = opened(max_bytes=1 << 30)
    stragglers: dict[int, bytes] = {}
    ended = threading.Event()
    faults: list[BaseException] = []

    def read_all() -> None:
        try:
            while not ended.is_set():
                for batch_id, content in list(stragglers.items()):
                    assert store.read(TOPIC, batch_id) == content
        except BaseException as fault:
            faults.append(fault)

    reader = threading.Thread(target=read_all)
    reader.start()
    for number in range(60):
        (straggler,) = append(store, payload(number, KIB))
        stragglers[straggler] = payload(number, KIB)
        settle(store, *append(store, payload(0, 31 * KIB), payload(0, 30 * KIB)))
        store.checkpoint()
    ended.set()
    reader.join()
    assert faults == []
    assert store._log.size < 20 * SEGMENT


@pytest.mark.parametrize("max_bytes", [1 << 20, 1 << 30])
def test_read_that_found_its_place_before_a_move_finds_it_anew(
    opened: Reopened, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    store = opened(max_bytes)
    (straggler,) = append(store, payload(1, 4 * KIB))
    settle(store, *append(store, payload(2, 60 * KIB)))
    append(store, payload(3, 50 * KIB))
    read = store._log.read

    def late(place: PayloadLocation) -> bytes:
        monkeypatch.setattr(store._log, "read", read)
        keep_house(store)
        append(store, payload(4, 50 * KIB))
        with pytest.raises(SegmentGone):
            read(place)
        return read(place)

    monkeypatch.setattr(store._log, "read", late)
    assert store.read(TOPIC, straggler) == payload(1, 4 * KIB)


def test_spare_segment_cannot_be_read(opened: Reopened) -> None:
    store = opened(1 << 30)
    settle(store, *append(store, payload(1, SEGMENT)))
    append(store, payload(2))
    keep_house(store)
    # A descriptor that were opened now would read what is written over it later.
    with pytest.raises(SegmentGone):
        store._log.read(PayloadLocation(1, 0, SEGMENT))


def test_crash_between_payload_and_row_leaves_nothing_to_see_and_nothing_behind(
    opened: Reopened, tmp_path: Path
) -> None:
    store = opened()
    (kept,) = append(store, payload(1))
    store._log.append([payload(2)])
    store = opened()
    assert [record.batch_id for record in store.pending(TOPIC, after=0, limit=9)] == [kept]
    assert store._log.live() == {1: 16 * KIB} and store._log.size == 32 * KIB
    (fresh,) = append(store, payload(3))
    assert segments(tmp_path) == ["payload-1.seg", "payload-2.seg"], "nothing is appended behind a torn tail"
    settle(store, kept)
    keep_house(store)
    assert segments(tmp_path) == ["payload-2.seg"] and store.read(TOPIC, fresh) == payload(3)


def test_full_store_recovers_once_acknowledgements_have_freed_space(opened: Reopened) -> None:
    store = opened(max_bytes=400 * KIB)
    ids: list[int] = []
    with pytest.raises(Saturated):
        while True:
            ids += append(store, payload(len(ids)))
    assert len(ids) > 10
    assert [store.read(TOPIC, one) for one in ids] == [payload(one) for one in range(len(ids))]
    # Every other one stays: no segment is empty, but half of each can be had again.
    settle(store, *(one for one in ids if one % 3))
    keep_house(store)
    for _ in range(6):
        append(store, payload(0))
    assert all(store.read(TOPIC, one) for one in ids if not one % 3)


def test_current_segment_does_not_keep_a_small_store_full(opened: Reopened) -> None:
    store = opened(max_bytes=100 * KIB)
    ids: list[int] = []
    for _ in range(5):
        with pytest.raises(Saturated):
            while True:
                ids += append(store, payload(1, 8 * KIB))
        settle(store, *ids)
        ids.clear()
        keep_house(store)
        ids += append(store, payload(2, 8 * KIB))


def test_flipped_bit_is_noticed(opened: Reopened, tmp_path: Path) -> None:
    store = opened()
    (batch_id,) = append(store, payload(1))
    content = bytearray((tmp_path / "payload-1.seg").read_bytes())
    content[5000] ^= 1
    (tmp_path / "payload-1.seg").write_bytes(content)
    with pytest.raises(IntegrityError):
        store.read(TOPIC, batch_id)


def test_store_of_the_first_schema_is_refused(opened: Reopened, tmp_path: Path) -> None:
    opened()
    connection = connect(tmp_path / "mailbox.db")
    connection.pragma("user_version", 1)
    connection.close()
    with pytest.raises(StateError, match="schema 1"):
        opened()


def test_sector_that_cannot_be_read_stops_neither_compaction_nor_the_removal_of_ended_keys(
    opened: Reopened, disk: FaultyDisk, tmp_path: Path
) -> None:
    store = opened()
    keys = Keys(bytes(KEY_BYTES), 1000)
    send = Send(Origin("fast/0", 1, 1), b"", (NewBatch(TOPIC, 1, payload(0, 4 * KIB), keys),))
    store.commit([send], [], now_unix_ns=1)
    ids = [batch_id for one in range(1, 12) for batch_id in append(store, payload(one, 8 * KIB))]
    settle(store, *ids[:8])
    disk.unreadable = True
    for second in range(2, 5):
        later = Send(Origin("fast/0", 1, second), b"", (NewBatch(TOPIC, 1, b"later"),))
        store.commit([later], [], now_unix_ns=second * 10**9)
        keep_house(store)
    connection = connect(tmp_path / "mailbox.db")
    assert connection.execute("SELECT count(*) FROM replay_keys").fetchall() == [(0,)]
    connection.close()
    disk.unreadable = False
    assert store.read(TOPIC, 1) == payload(0, 4 * KIB), "what could not be moved is where it was"


def test_ended_keys_are_removed_whatever_becomes_of_the_segments(
    opened: Reopened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = opened()
    keys = Keys(bytes(KEY_BYTES), 1000)
    for second in (1, 5):
        keyed = NewBatch(TOPIC, 1, payload(0), keys if second == 1 else None)
        store.commit([Send(Origin("fast/0", 1, second), b"", (keyed,))], [], now_unix_ns=second * 10**9)

    def broken(_share: float) -> bool:
        raise Unavailable("broken")

    monkeypatch.setattr(store._compaction, "step", broken)
    with pytest.raises(Unavailable):
        store.checkpoint()
    connection = connect(tmp_path / "mailbox.db")
    assert connection.execute("SELECT count(*) FROM replay_keys").fetchall() == [(0,)]
    connection.close()
