"""Takes batches in: recognises those that came before, refuses what has no room or no time, stores the rest.

Never answers anything of a send before all of it is on disk or refused, and never stores the same send of the same
peer twice.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from services.mailbox.access.quotas import QuotaTake
from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.intake.commits import Commits, Committed, Outcome
from services.mailbox.settle.settlements import Burials, Settlements
from services.mailbox.state.bounds import TENANT_SHARE
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.receipts import ID_STRIDE
from services.mailbox.state.topics import MILLISECOND
from snavio.clock import Clock
from snavio.domain.directory.topic_rule import BOUNDS
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated, SnavioError, Unavailable
from snavio.hop.ledger_part import nothing_delivered, rest_unknown
from snavio.host.background import background
from snavio.native import (
    MESH_BATCH_BYTES,
    MESH_BATCH_COMMANDS,
    Ledger,
    Sending,
    replay_keys,
    shard_of,
    slice_runs,
)
from snavio.ports.mailbox_store import (
    KEY_BYTES,
    MAX_ROW_MESSAGES,
    BatchRecord,
    Keys,
    MailboxStore,
    NewBatch,
    Origin,
    Recall,
    Send,
)
from snavio.v1.batch_pb2 import Verdicts
from snavio.v1.mailbox_pb2 import SendBatch

DEFAULT_BUDGET_MS = 5000
MAX_TOPIC_CHARACTERS = 256
FULL_RETRY_MS = 1000
_SIGNED_LIMIT = 1 << 63
FIRST = struct.Struct("<IiQq")
"""Of `Recognised.findings`: where the first message with a key is; see ReplayWindow.sift."""
_OWNERS_SHARE = f"{TENANT_SHARE}: The topic's owner has used up its share."
LONGEST_REPLAY_MS = BOUNDS["replay_ms"][1]

Answer = Callable[[bytes], None]
"""Takes a batch's final Verdicts, once."""

Admits = Callable[[str, int], QuotaTake | tuple[Verdict, int, str]]
"""So many messages for a topic; or what speaks against them: verdict, retry hint in ms, and a sentence."""


def admit_all(_topic: str, messages: int) -> QuotaTake:
    """Nothing does."""
    return QuotaTake(messages)


def give_back(taken: Iterable[QuotaTake], unused: int) -> None:
    """So many of what was taken for a send were not stored: duplicates and failures must not use up a quota."""
    for one in taken:
        part = min(unused, one.messages)
        one.give_back(part)
        unused -= part


@dataclass(frozen=True, slots=True)
class Sender:
    """The process at the other end of a stream; its mesh identity is part of `peer`."""

    peer: str
    epoch: int


class BatchIntake:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        store: MailboxStore,
        commits: Commits,
        delivery: Delivery,
        settlements: Settlements,
        rows: BatchReader,
        clock: Clock,
    ) -> None:
        self._store = store
        self._commits = commits
        self._delivery = delivery
        self._settlements = settlements
        self._rows = rows
        self._clock = clock
        self._underway: dict[Origin, list[Answer]] = {}

    async def take(self, frame: bytes, sender: Sender, *, final: Answer, admits: Admits = admit_all) -> None:
        """Judge one frame; `final` is called once, when all of it is decided."""
        try:
            await self._take(frame, sender, final=final, admits=admits)
        except SnavioError:
            raise
        except Exception as error:
            # Nothing of it was handed to the disk. Told, and not by the end of the stream, as any other refusal.
            background().failed("intake", error)
            final(nothing_delivered(SendBatch, frame))

    async def _take(self, frame: bytes, sender: Sender, *, final: Answer, admits: Admits) -> None:
        arrived_mono_ns = self._clock.mono_ns()
        await self._commits.room()
        sending = Sending.open(frame, MESH_BATCH_BYTES, MESH_BATCH_COMMANDS, secret=self._store.replay_secret)
        ledger = sending.ledger
        if sending.frame_code or not ledger.count:
            # Told, and not by the end of the stream: its sender would send it again, first and for as long as it may.
            final(ledger.opening())
            return
        if not 0 < ledger.batch_seq < _SIGNED_LIMIT:
            final(ledger.close(Verdict.DELIVERY_FAILURE, 0, "Not the number of a batch."))
            return
        origin = Origin(sender.peer, sender.epoch, ledger.batch_seq)
        for topic, count, _ in sending.topics:
            if self._delivery.overflow.unread(topic, count):
                await self._read_oldest(topic, count)
        # A resend over a new connection may overtake the fsync of the first copy: both get that one's answer.
        if origin in self._underway:
            self._underway[origin].append(final)
            return
        recalled = self._store.recall(origin)
        if recalled is Recall.FULL:
            final(ledger.close(Verdict.SATURATED, FULL_RETRY_MS, "Too many processes have sent of late."))
            return
        if recalled is not Recall.NEW:
            final(_remembered(ledger, recalled))
            return
        budget_ms = sending.budget_ms or DEFAULT_BUDGET_MS
        if self._clock.mono_ns() - arrived_mono_ns >= budget_ms * MILLISECOND:
            final(ledger.close(Verdict.DELIVERY_FAILURE, 0, "The budget ran out before the mailbox."))
            return
        batches: list[NewBatch] = []
        taken: list[QuotaTake] = []
        burials = Burials(self._settlements)
        try:
            refusals = self._admit(sending, admits, batches, taken, burials)
            if ledger.done:
                # Nothing to store, and so nothing to recall: one answer, of which a resend has heard all or nothing.
                final(_together(refusals))
                return
            # A refused message must be refused again when the send is repeated, or the resend would be half stored.
            codes = ledger.codes.replace(b"\x00", bytes([Verdict.DELIVERED]))
        except Exception as error:
            burials.heard(Unavailable(str(error)))
            self._release(batches, taken)
            raise
        refused = codes.strip(bytes([Verdict.DELIVERED])) != b""
        keyed = any(batch.keys is not None for batch in batches)
        self._underway[origin] = [final]
        send = Send(origin, codes if refused or keyed else b"", tuple(batches))

        def heard(outcome: Outcome) -> None:
            self._heard(send, ledger, refusals, outcome)
            burials.heard(outcome)
            if isinstance(outcome, Committed):
                self.decided(send.batches)
                self.bring_in(outcome, taken)
            else:
                self._release(send.batches, taken)

        try:
            self._commits.submit(
                send=send,
                progress=burials.progress,
                done=heard,
            )
        except SnavioError as error:
            heard(error)

    async def _read_oldest(self, topic: str, messages: int) -> None:
        """Read what a full topic may have to bury, if nothing of it is in memory."""
        while self._delivery.overflow.unread(topic, messages):
            asked = self._delivery.window.shortage(topic)
            if asked is None:
                return
            await self._rows.refill(self._delivery, asked)

    def _admit(
        self,
        sending: Sending,
        admits: Admits,
        batches: list[NewBatch],
        taken: list[QuotaTake],
        burials: Burials,
    ) -> list[bytes]:
        """Rows for the topics that have room; returns Verdicts of the others, refused for themselves alone.

        They are told with the rest, when their codes are on disk: were they told before and the mailbox killed then,
        the send would come again as a whole, and what its producer holds for refused might be stored.
        """
        refusals: list[bytes] = []
        start = 0
        entries = zip(sending.topics, sending.keys, sending.once_ms, strict=True)
        for part, ((topic, count, runs), keys, once_ms) in enumerate(entries):
            close, offset = sending.ledger.close_part, start
            start += count
            if not count:
                continue
            if not topic or len(topic) > MAX_TOPIC_CHARACTERS:
                refusals.append(
                    close(part, 0, count, Verdict.DELIVERY_FAILURE, 0, "Not the name of a topic.")
                )
            elif not isinstance(admitted := admits(topic, count), QuotaTake):
                refusals.append(close(part, 0, count, *admitted))
            else:
                named = Keys(keys, self._window_ms(topic, once_ms)) if keys else None
                rows = list(self._rows_of(topic, count, runs, named, offset))
                size = sum(len(row.runs) for row in rows)
                if (full := self._reserve(topic, count, size, burials)) is not None:
                    admitted.give_back(count)
                    refusals.append(close(part, 0, count, Verdict.SATURATED, full.retry_after_ms, _why(full)))
                    continue
                batches += rows
                taken.append(admitted)
        return refusals

    def _release(self, batches: Sequence[NewBatch], taken: Sequence[QuotaTake]) -> None:
        """None of it is stored: its room and its quota are others' again."""
        give_back(taken, sum(batch.count for batch in batches))
        self.decided(batches)
        for batch in batches:
            self._delivery.topics.release(batch.topic, batch.count, batch.shard)

    def _reserve(self, topic: str, count: int, size: int, burials: Burials) -> Saturated | None:
        try:
            burials.add(self._delivery.overflow.reserve(topic, count, self._shard(topic), size=size))
        except Saturated as full:
            return full
        return None

    def _window_ms(self, topic: str, once_ms: int) -> int:
        # The longer of the two: with the topic's own shorter one, a duplicate that the sender promises to recognise
        # would be stored again.
        return max(self._delivery.policies.of(topic).replay_ms, min(once_ms, LONGEST_REPLAY_MS))

    def _rows_of(
        self, topic: str, count: int, runs: bytes, keys: Keys | None, offset: int
    ) -> Iterator[NewBatch]:
        shard = self._shard(topic)
        for first in range(0, count, MAX_ROW_MESSAGES):
            length = min(MAX_ROW_MESSAGES, count - first)
            part = runs if length == count else slice_runs(runs, first, length)
            named = None
            if keys is not None:
                columns = keys.columns[first * KEY_BYTES : (first + length) * KEY_BYTES]
                named = Keys(columns, keys.window_ms)
            yield NewBatch(topic, length, part, named, offset + first, shard)

    def _shard(self, topic: str) -> int:
        """A command has no key of its own to be sharded by."""
        return shard_of(topic, self._delivery.policies.of(topic).shards)

    def room(self, topic: str) -> tuple[int, str]:
        """Messages that still fit into a topic, and why none does."""
        return self._delivery.topics.room(topic, self._shard(topic))

    def first(self, topic: str, source: str, command_id: str) -> tuple[int, int] | None:
        """The message that was stored under an id, and when, while the id is remembered."""
        key = replay_keys(self._store.replay_secret, topic, source, [(command_id.encode(), b"")])
        return self._store.first(key, now_unix_ns=self._clock.unix_ns())

    def _heard(
        self,
        send: Send,
        ledger: Ledger,
        refusals: list[bytes],
        outcome: Outcome,
    ) -> None:
        """Answer, each apart; what memory makes of the outcome follows in the same turn of the loop."""
        assert send.origin is not None
        first, *again = self._underway.pop(send.origin)
        try:
            first(_together([*refusals, self._answer(ledger, outcome)]))
        except Exception as error:
            background().failed("intake", error)
            first(rest_unknown(ledger, "The mailbox failed after the commit."))
        for resend in again:
            try:
                resend(
                    Verdicts(batch_seq=send.origin.seq, codes=ledger.codes, final=True).SerializeToString()
                )
            except Exception as error:
                background().failed("intake", error)
                resend(rest_unknown(ledger, "The mailbox failed after the commit."))

    def _answer(self, ledger: Ledger, outcome: Outcome) -> bytes:
        if isinstance(outcome, Saturated):
            return ledger.close(Verdict.SATURATED, outcome.retry_after_ms, "The mailbox is full.")
        if not isinstance(outcome, Committed):
            # A disk that failed during the commit may have it all the same.
            return ledger.close(Verdict.OUTCOME_UNKNOWN, 0, "The mailbox's disk failed.")
        recognised = outcome.recognised
        assert recognised is not None
        if not recognised.findings:
            return ledger.close(Verdict.DELIVERED, 0, "")
        places = _places(outcome, ledger.count)
        hints: dict[int, tuple[int, str]] = {
            Verdict.SATURATED: (recognised.retry_after_ms, "The replay window holds all the keys it may."),
            Verdict.CONFLICT: (0, "The id was used for another command."),
        }
        return ledger.decide_each(recognised.send.codes, hints, places)

    def decided(self, batches: Sequence[NewBatch]) -> None:
        """These batches, as they were handed to the store, are not on their way any more."""
        for batch in batches:
            self._delivery.topics.decided(batch.topic, len(batch.runs))

    def bring_in(self, outcome: Committed, taken: Sequence[QuotaTake]) -> None:
        """Let what was stored be delivered, and give back the room and the quota of what was not new."""
        try:
            self._bring_in(outcome, taken)
        except Exception as error:
            # On disk, and not in memory: it would wait there, unseen, until the next start. So that is now.
            background().failed("bring in", error)
            background().lost("bring in", error)

    def _bring_in(self, outcome: Committed, taken: Sequence[QuotaTake]) -> None:
        recognised = outcome.recognised
        assert recognised is not None
        for batch_id, batch in zip(outcome.ids, recognised.send.batches, strict=True):
            record = BatchRecord.fresh(batch_id, batch, outcome.stored_unix_ns, outcome.stored_age_ns)
            if self._delivery.window.stored(batch.topic, record):
                self._rows.keep(batch_id, batch.runs)
            if batch.keys is not None:
                self._delivery.topics.keep(batch.topic, batch.keys.window_ms * MILLISECOND)
        for batch, codes, _ in recognised.findings:
            # Room was taken up for all of them, before it was known which are new.
            left = batch.count - codes.count(Verdict.DELIVERED)
            self._delivery.topics.release(batch.topic, left, batch.shard)
            give_back(taken, left)


def _why(full: Saturated) -> str:
    # Of a share without its numbers: the sender may be another tenant than the topic's owner.
    return _OWNERS_SHARE if full.reason == TENANT_SHARE else str(full)


def _together(answers: list[bytes]) -> bytes:
    """One of several Verdicts about the same batch."""
    if len(answers) == 1:
        return answers[0]
    parts = [Verdicts.FromString(answer) for answer in answers]
    first = min(part.first for part in parts)
    codes = bytearray(max(part.first + len(part.codes) for part in parts) - first)
    for part in parts:
        for index, code in enumerate(part.codes, part.first - first):
            codes[index] = code or codes[index]
    refusals = [one for part in parts for one in part.refusal]
    refusals.sort(key=lambda one: one.index)
    whole = Verdicts(
        batch_seq=parts[0].batch_seq,
        first=first,
        codes=bytes(codes),
        refusal=refusals,
        final=True,
    )
    serialised: bytes = whole.SerializeToString()
    return serialised


def _places(committed: Committed, count: int) -> bytes:
    """The message that each command with a key is, or of which it is a duplicate, for `Ledger.decide_each`."""
    assert committed.recognised is not None
    recognised, stored = committed.recognised, committed.stored_unix_ns
    # Interleaved: id, time, id, time.
    told = array("q", bytes(16 * count))
    new = zip(recognised.send.batches, committed.ids, strict=True)
    own_ids = iter([batch_id for batch, batch_id in new if batch.keys is not None])
    for batch, codes, firsts in recognised.findings:
        begin, fresh = 2 * batch.first, codes.count(Verdict.DELIVERED)
        if fresh:
            first = next(own_ids) * ID_STRIDE
            own = range(first, first + fresh)
            if fresh == batch.count:
                told[begin : begin + 2 * fresh : 2] = array("q", own)
                told[begin + 1 : begin + 2 * fresh : 2] = array("q", [stored]) * fresh
            else:
                places = [place for place, code in enumerate(codes) if code == Verdict.DELIVERED]
                for place, msg_id in zip(places, own, strict=True):
                    told[begin + 2 * place], told[begin + 2 * place + 1] = msg_id, stored
        for index, number, at, at_ns in FIRST.iter_unpack(firsts):
            place = begin + 2 * index
            if codes[index] == Verdict.DUPLICATE:
                told[place] = at if number < 0 else committed.keyed_ids[number] * ID_STRIDE + at
                told[place + 1] = recognised.stored_unix_ns(at_ns) if number < 0 else stored
    return told.tobytes()


def _remembered(ledger: Ledger, recalled: bytes | Recall) -> bytes:
    """The answer to a send that was stored before."""
    if recalled == b"":
        return ledger.close(Verdict.DELIVERED, 0, "")
    if isinstance(recalled, Recall) or len(recalled) != ledger.count:
        return ledger.close(Verdict.OUTCOME_UNKNOWN, 0, "Too old to say whether it was stored.")
    verdicts = Verdicts(batch_seq=ledger.batch_seq, codes=recalled, final=True)
    serialised: bytes = verdicts.SerializeToString()
    return serialised
