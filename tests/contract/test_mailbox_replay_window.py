"""A key is stored once within the whole replay window: the stores' promise, against each adapter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.replay_keys import ReplayKeys
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.native import ReplayWindow, Sending, blake3_digest, replay_keys, uuid7
from snavio.ports.mailbox_store import KEY_BYTES, Keys, MailboxStore, NewBatch, Origin, Progress, Send
from tests.support.mailbox import commands, send_batch

S = 1_000_000_000
NOW = 1_700_000_000 * S
WINDOW_MS = 300_000
TOPIC = "acme/billing"
NEW, DUPLICATE, CONFLICT, FULL = (
    bytes([one]) for one in (Verdict.DELIVERED, Verdict.DUPLICATE, Verdict.CONFLICT, Verdict.SATURATED)
)
Open = Callable[..., MailboxStore]


@pytest.fixture(params=["sqlite", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    stores: list[MailboxStore] = []

    def open_one(**options: Any) -> MailboxStore:
        if request.param == "sqlite":
            stores.append(SqliteMailboxStore(tmp_path / "mailbox.db", digest=blake3_digest, **options))
        else:
            stores.append(MemoryMailboxStore(**options))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def reopened(tmp_path: Path) -> Iterator[Open]:
    """Of the adapter that outlives a restart; opening it again closes it before."""
    held: list[SqliteMailboxStore] = []

    def again(**options: Any) -> MailboxStore:
        if held:
            held.pop().close()
        held.append(SqliteMailboxStore(tmp_path / "mailbox.db", digest=blake3_digest, **options))
        return held[0]

    yield again
    held.pop().close()


@dataclass
class Sender:
    """Sends commands that are stored once, each a batch of its own send."""

    store: MailboxStore
    seq: int = 0
    ids: dict[int, str] = field(default_factory=dict)

    def batch(
        self, *messages: tuple[int, str], source: str = "acme/shop", window_ms: int = WINDOW_MS
    ) -> Send:
        """Of (number of the id, payload)."""
        self.seq += 1
        some = [
            commands(1, mark=mark, ids=[self.ids.setdefault(number, uuid7())])[0] for number, mark in messages
        ]
        frame = send_batch(self.seq, (TOPIC, some), once=True, source=source)
        sending = Sending.open(frame, secret=self.store.replay_secret)
        (topic, count, runs), (keys,) = sending.topics[0], sending.keys
        codes = NEW * count
        return Send(
            Origin("fast/0", 1, self.seq), codes, (NewBatch(topic, count, runs, Keys(keys, window_ms)),)
        )

    def commit(self, *sends: Send, now: int = NOW) -> list[bytes]:
        """The codes of each; what is new is stored."""
        recognised = [one.send for one in self.store.recognise(sends, now_unix_ns=now)]
        self.store.commit(recognised, [], now_unix_ns=now)
        return [send.codes for send in recognised]

    def send(self, *messages: tuple[int, str], now: int = NOW, **options: Any) -> bytes:
        return self.commit(self.batch(*messages, **options), now=now)[0]


def stored(store: MailboxStore) -> int:
    return sum(record.messages for record in store.topics())


def test_I_2_same_key_and_payload_is_a_duplicate_and_another_payload_a_conflict(opened: Open) -> None:
    sender = Sender(opened())
    assert sender.send((1, "a"), (2, "a")) == NEW * 2
    for third in (NEW, DUPLICATE, DUPLICATE):
        assert sender.send((1, "a"), (3, "a"), (2, "other"), now=NOW + S) == DUPLICATE + third + CONFLICT
    assert stored(sender.store) == 3


def test_I_2_duplicates_within_a_batch_and_within_a_group_are_stored_once(opened: Open) -> None:
    sender = Sender(opened())
    first = sender.batch((1, "a"), (1, "a"), (2, "a"), (1, "b"))
    second = sender.batch((2, "a"), (3, "a"), (1, "a"))
    assert sender.commit(first, second) == [NEW + DUPLICATE + NEW + CONFLICT, DUPLICATE + NEW + DUPLICATE]
    assert stored(sender.store) == 3
    store = sender.store
    runs = store.read(TOPIC, store.pending(TOPIC, after=0, limit=1)[0].batch_id)
    assert runs.count(b"acme/shop") == 1


def test_I_2_first_outcome_is_told_with_its_message_id(opened: Open) -> None:
    sender = Sender(opened())
    first, second = sender.batch((1, "a"), (2, "a")), sender.batch((9, "a"), (2, "a"))
    found = sender.store.recognise([first, second], now_unix_ns=NOW)
    assert found[1].findings[0][2][:16].hex(" ", 4) == "01000000 00000000 01000000 00000000", (
        "batch 0, message 1"
    )
    sender.store.commit([one.send for one in found], [], now_unix_ns=NOW)
    again = sender.store.recognise([sender.batch((7, "a"), (2, "a"))], now_unix_ns=NOW)[0].findings[0][2]
    batch_id = sender.store.pending(TOPIC, after=0, limit=1)[0].batch_id
    assert (int.from_bytes(again[4:8], "little", signed=True), int.from_bytes(again[8:16], "little")) == (
        -1,
        batch_id * 1024 + 1,
    )


def test_of_a_group_everything_is_stored_or_nothing_and_the_next_send_sees_which(opened: Open) -> None:
    sender = Sender(opened())
    sender.send((1, "a"))

    def grouped(*tags: int, send: Send) -> Send:
        (batch,) = send.batches
        return replace(
            send, batches=(replace(batch, groups=b"".join(tag.to_bytes(4, "little") for tag in tags)),)
        )

    # Group 0 is new; 1 has a conflict; 2 refuses that its second message is known; 3 does not mind.
    first = grouped(
        0,
        2,
        2,
        5,
        5,
        6,
        6,
        send=sender.batch((2, "a"), (3, "a"), (1, "b"), (4, "a"), (2, "a"), (1, "a"), (5, "a")),
    )
    second = sender.batch((3, "a"), (4, "other"), (5, "a"))
    none = b"\0"
    assert sender.commit(first, second) == [
        NEW + none + CONFLICT + none + DUPLICATE + DUPLICATE + NEW,
        NEW + NEW + DUPLICATE,
    ]
    assert stored(sender.store) == 5
    assert sender.send((3, "a"), (4, "other"), (2, "a")) == DUPLICATE * 3


def test_I_2_commit_that_failed_remembers_no_key(opened: Open) -> None:
    sender = Sender(opened(max_bytes=300_000))
    with pytest.raises(Saturated):
        sender.send(*((number, "x" * 2000) for number in range(200)))
    assert sender.send((1, "x" * 2000)) == NEW
    assert sender.send((1, "x" * 2000)) == DUPLICATE


def test_I_13_key_outlives_the_acknowledgement_and_the_batch(opened: Open) -> None:
    sender = Sender(opened())
    sender.send((1, "a"))
    (record,) = sender.store.pending(TOPIC, after=0, limit=9)
    sender.store.commit([], [Progress(TOPIC, record.batch_id, 1, 1)], now_unix_ns=NOW)
    assert stored(sender.store) == 0
    while sender.store.checkpoint():
        pass
    assert sender.send((1, "a"), now=NOW + 299 * S) == DUPLICATE


@pytest.mark.parametrize("window_ms", [1000, WINDOW_MS, 3_600_000])
def test_G_8_key_is_eligible_again_right_after_its_window_and_not_before(
    opened: Open, window_ms: int
) -> None:
    sender = Sender(opened())
    sender.send((1, "a"), window_ms=window_ms)
    end = NOW + window_ms * 1_000_000
    assert sender.send((1, "a"), now=end, window_ms=window_ms) == DUPLICATE
    assert sender.send((1, "a"), now=end + S, window_ms=window_ms) == NEW
    assert sender.send((1, "b"), now=end + S, window_ms=window_ms) == CONFLICT


def test_I_13_full_table_refuses_what_is_new_and_evicts_nothing(opened: Open) -> None:
    sender = Sender(opened(max_keys=8))
    # Half of it is the most that one tenant may have.
    assert sender.send(*((number, "a") for number in range(6))) == NEW * 4 + FULL * 2
    assert sender.send(*((number, "a") for number in range(10, 16)), source="other/one") == NEW * 4 + FULL * 2
    refused = sender.store.recognise([sender.batch((77, "a"), source="third/x")], now_unix_ns=NOW + 10 * S)
    assert refused[0].send.codes == FULL and refused[0].send.batches == ()
    assert refused[0].retry_after_ms > 1000
    assert sender.send(*((number, "a") for number in range(4)), now=NOW + 299 * S) == DUPLICATE * 4
    assert sender.send((77, "a"), now=NOW + 302 * S) == NEW


def test_trap_30_same_id_of_two_sources_is_two_messages(opened: Open) -> None:
    sender = Sender(opened())
    assert sender.send((1, "a")) == NEW
    assert sender.send((1, "b"), source="other/shop") == NEW
    assert sender.send((1, "a"), source="acme/shop2") == NEW


def test_I_13_keys_survive_restarts_and_time_stands_still_in_between(reopened: Open) -> None:
    sender = Sender(reopened())
    sender.send((1, "a"), now=NOW)
    sender.send((2, "a"), now=NOW + 200 * S)
    for jump in (-3600 * S, 3600 * S, 86_400 * S):
        # Whatever the clock says after a restart, nobody knows how long it took: the window goes on from here.
        sender.store = reopened()
        start = NOW + 200 * S + jump
        assert sender.send((1, "a"), (2, "a"), now=start) == DUPLICATE * 2
        assert sender.send((1, "b"), now=start + 99 * S) == CONFLICT
    assert sender.send((1, "a"), now=start + 102 * S) == NEW
    assert sender.send((2, "a"), now=start + 299 * S) == DUPLICATE


def test_I_13_ended_keys_leave_the_disk(reopened: Open, tmp_path: Path) -> None:
    sender = Sender(reopened())
    for number in range(300):
        sender.send((number, "a"), now=NOW + number * S // 5)
    sender.send((999, "a"), now=NOW + 400 * S)
    while sender.store.checkpoint():
        pass
    connection = connect(tmp_path / "mailbox.db")
    assert connection.execute("SELECT count(*) FROM replay_keys").fetchall() == [(1,)]
    connection.close()


def test_G_7_damaged_keys_are_noticed_and_nothing_new_is_let_in_for_a_window(
    reopened: Open, tmp_path: Path
) -> None:
    sender = Sender(reopened())
    sender.send((1, "a"))
    sender.send((2, "a"))
    sender.store = reopened()  # its log is in the database now
    sender.store.close()
    connection = connect(tmp_path / "mailbox.db")
    connection.execute("UPDATE replay_keys SET keys = zeroblob(32) WHERE batch_id = 1")
    connection.close()
    sender.store = SqliteMailboxStore(tmp_path / "mailbox.db", digest=blake3_digest)
    try:
        assert sender.send((1, "a"), (2, "a"), now=NOW + S) == FULL + DUPLICATE
        assert sender.send((1, "a"), now=NOW + 302 * S) == NEW
    finally:
        sender.store.close()


def test_G_7_keys_of_a_page_that_reads_as_nothing_close_the_door_and_not_the_mailbox(
    reopened: Open, tmp_path: Path
) -> None:
    sender = Sender(reopened())
    sender.send((1, "a"))
    sender.send((2, "a"))
    sender.store.close()
    connection = connect(tmp_path / "mailbox.db")
    connection.execute("PRAGMA writable_schema = RESET; PRAGMA writable_schema = ON")
    loosen = "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE name = 'replay_keys'"
    connection.execute(loosen, ("keys BLOB NOT NULL", "keys BLOB"))
    connection.execute("PRAGMA writable_schema = RESET")
    connection.execute("UPDATE replay_keys SET keys = NULL WHERE batch_id = 2")
    connection.close()
    sender.store = SqliteMailboxStore(tmp_path / "mailbox.db", digest=blake3_digest)
    try:
        assert sender.send((1, "a"), (2, "a"), now=NOW + S) == DUPLICATE + FULL
    finally:
        sender.store.close()


def test_G_7_pages_that_lead_in_a_circle_are_read_once_and_close_the_door() -> None:
    reads = 0

    class Circle:
        """A database whose pages lead back to a row that was there before."""

        def rows(self, statement: str, _values: tuple[object, ...] = ()) -> list[Any]:
            nonlocal reads
            if "secret" in statement:
                return [(b"s" * 32,)]
            reads += 1
            assert reads < 10
            return [(7, 0, 1, b"", blake3_digest(b"7\n0\n1\n"))]

    keys = ReplayKeys(Circle(), digest=blake3_digest, capacity=10)  # type: ignore[arg-type]
    assert reads == 2
    assert keys.known._blind_until_ns > 0


@pytest.mark.parametrize("column", ["at_ns", "until_ns"])
def test_G_7_time_of_a_key_that_was_hit_ends_no_window(reopened: Open, tmp_path: Path, column: str) -> None:
    sender = Sender(reopened())
    sender.send((1, "a"))
    sender.send((2, "a"))
    sender.store.close()
    connection = connect(tmp_path / "mailbox.db")
    connection.execute(f"UPDATE replay_keys SET {column} = {column} + (1 << 60) WHERE batch_id = 2")
    connection.close()
    sender.store = SqliteMailboxStore(tmp_path / "mailbox.db", digest=blake3_digest)
    try:
        assert sender.send((1, "a"), (2, "a"), (3, "a"), now=NOW + S) == DUPLICATE + FULL + FULL
        assert sender.send((3, "a"), now=NOW + 302 * S) == NEW
    finally:
        sender.store.close()


def test_I_13_index_agrees_with_a_dict_that_forgets_nothing_early() -> None:
    """Random claims in random groups, against a dict with expiry; the tick of the index is 62.5 ms."""
    dice = random.Random(5)
    window, twin = ReplayWindow(capacity=150, share_per_owner=150), dict[int, tuple[int, int, int]]()
    now, batch_id = 0, 0
    secret = dice.randbytes(32)
    seen = {NEW: 0, DUPLICATE: 0, CONFLICT: 0, FULL: 0}
    for _ in range(4000):
        now += dice.choice([0, 1, 10_000_000, 200_000_000, 3 * S])
        window_ns = dice.choice([S, 10 * S, 60 * S])
        # A key keeps its window: it belongs to one topic.
        numbers = [
            dice.randrange(150) * 3 + (S, 10 * S, 60 * S).index(window_ns) for _ in range(dice.randint(1, 12))
        ]
        messages = [(number, dice.choice([0, 0, 0, 1])) for number in numbers]
        keys = replay_keys(secret, "t", "a", [(b"%d" % number, b"%d" % mark) for number, mark in messages])
        ((codes, fresh, left, _, _),) = window.sift([(keys, runs_for(len(messages)), b"", 0)], now)
        expected = bytearray()
        surely = {number: one for number, one in twin.items() if one[1] >= now}
        maybe = {number: one for number, one in twin.items() if one[1] < now <= one[1] + 125_000_000}
        room = 150 - len(surely) - len(maybe)
        for index, (number, mark) in enumerate(messages):
            held = surely.get(number) or maybe.get(number)
            if held is not None and (number in surely or codes[index : index + 1] not in (NEW, FULL)):
                expected += DUPLICATE if held[0] == mark else CONFLICT
            elif codes[index : index + 1] == FULL:
                assert room <= 12, "refused only when it is full"
                expected += FULL
            else:
                expected += NEW
                surely[number] = (mark, now + window_ns, 0)
                room -= 1
        assert codes == expected
        assert fresh == codes.count(NEW) and len(left) == fresh * KEY_BYTES
        if dice.random() < 0.9:  # the others' commits failed
            batch_id += 1
            window.remember(left, batch_id, now, window_ns)
            for (number, mark), code in zip(messages, codes, strict=True):
                if code == NEW[0]:
                    twin[number] = (mark, now + window_ns, batch_id)
        for verdict in seen:
            seen[verdict] += codes.count(verdict)
    assert min(seen.values()) > 50, seen


def runs_for(count: int) -> bytes:
    """As many commands as there are keys: sifting leaves the others' bytes out."""
    return Sending.open(send_batch(1, (TOPIC, [b"\x0a\x01x"] * count))).topics[0][2]
