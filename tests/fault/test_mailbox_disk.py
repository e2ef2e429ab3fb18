"""The disk is full, fails or loses a file: the mailbox's store reports it, and goes on with the rest."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from snavio.adapters.embedded.mailbox_database import PAGE_SIZE
from snavio.adapters.embedded.payload_log import RESERVE_BYTES
from snavio.errors import IntegrityError, Saturated, Unavailable
from tests.support import segments as stores
from tests.support.power import FailingSync, on
from tests.support.segments import (
    KIB,
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


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_refuses_the_commit_and_the_segment_goes_on_where_it_was(
    opened: Reopened, disk: FaultyDisk, tmp_path: Path, code: int
) -> None:
    store = opened()
    (kept,) = append(store, payload(1))
    disk.fails["write"] = code
    with pytest.raises(Saturated):
        append(store, payload(2), payload(3))
    assert (tmp_path / "payload-1.seg").stat().st_size == 16 * KIB
    settle(store, kept)
    (fresh,) = append(store, payload(4))
    assert store.read(TOPIC, fresh) == payload(4)
    assert store._log.size == (tmp_path / "payload-1.seg").stat().st_size == 32 * KIB


def test_last_free_space_is_kept_for_acknowledgements(opened: Reopened, disk: FaultyDisk) -> None:
    store = opened()
    first, second = append(store, payload(1), payload(2))
    disk.free = RESERVE_BYTES
    with pytest.raises(Saturated):
        append(store, payload(3))
    settle(store, first)
    keep_house(store)
    settle(store, second)
    assert store._database.log_bytes <= 4 * PAGE_SIZE, "the log was started anew, so it does not grow"
    disk.free = None
    append(store, payload(3))


@pytest.mark.parametrize("call", ["write", "sync"])
def test_segment_whose_write_or_sync_failed_is_never_written_again(
    opened: Reopened, disk: FaultyDisk, tmp_path: Path, call: str
) -> None:
    store = opened(max_bytes=1 << 30)
    (kept,) = append(store, payload(1, 40 * KIB))
    disk.fails[call] = errno.EIO
    with pytest.raises(Unavailable):
        append(store, payload(2))
    assert store.read(TOPIC, kept) == payload(1, 40 * KIB)
    (fresh,) = append(store, payload(3))
    assert store.read(TOPIC, fresh) == payload(3)
    assert segments(tmp_path) == ["payload-1.seg", "payload-2.seg"]
    settle(store, kept)
    keep_house(store)
    assert segments(tmp_path) == ["payload-2.seg"], "it is not kept as a spare either"


def test_segment_without_a_durable_name_is_not_used(
    opened: Reopened, disk: FaultyDisk, tmp_path: Path
) -> None:
    store = opened()
    disk.fails["sync_folder"] = errno.EIO
    with pytest.raises(Unavailable):
        append(store, payload(1))
    assert segments(tmp_path) == []
    (fresh,) = append(store, payload(2))
    assert segments(tmp_path) == ["payload-2.seg"] and store.read(TOPIC, fresh) == payload(2)


def test_I_12_missing_or_short_segment_is_noticed_and_the_rest_is_delivered(
    opened: Reopened, tmp_path: Path
) -> None:
    store = opened()
    ids = [batch_id for one in range(3) for batch_id in append(store, payload(one, 40 * KIB))]
    store = opened()
    (tmp_path / "payload-1.seg").unlink()
    os.truncate(tmp_path / "payload-2.seg", 10 * KIB)
    for damaged in ids[:2]:
        with pytest.raises(IntegrityError):
            store.read(TOPIC, damaged)
    assert store.read(TOPIC, ids[2]) == payload(2, 40 * KIB)
    keep_house(store)
    store = opened()
    settle(store, *ids)
    keep_house(store)
    assert store.pending(TOPIC, after=0, limit=9) == [] and segments(tmp_path) == []


def test_payload_of_a_commit_that_may_yet_come_to_light_is_kept(tmp_path: Path, opened: Reopened) -> None:
    failing = FailingSync(dice=random.Random(1), chances={}, witness=lambda: None)
    with on(failing):
        store = opened()
        failing.armed = True
        with pytest.raises(Unavailable):
            append(store, payload(1))
        assert store.pending(TOPIC, after=0, limit=9) == []
        store._cramped = True  # housekeeping takes whatever it can get
        keep_house(store)
        shutil.copytree(
            tmp_path, tmp_path / "after", ignore=shutil.ignore_patterns("after", "*.lock", "*-shm")
        )
        opened.close()
    after = Reopened(tmp_path / "after", FaultyDisk())
    store = after()
    (record,) = store.pending(TOPIC, after=0, limit=9)
    assert store.read(TOPIC, record.batch_id) == payload(1)
    after.close()
