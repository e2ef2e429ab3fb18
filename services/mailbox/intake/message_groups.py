"""Takes groups of messages for topics of one tenant: each group is stored in all of its topics, or in none.

Never stores a part of a group, and never lets one group's refusal cost another: messages of all groups share a
transaction, a row for each topic, and one fsync.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import itemgetter

from services.mailbox.access.quotas import QuotaTake
from services.mailbox.intake.batch_intake import Admits
from services.mailbox.intake.commits import Commits, Committed
from services.mailbox.intake.new_messages import (
    MAX_REQUEST_BYTES,
    ids_of,
    refused,
    require_sender,
    stopped,
)
from services.mailbox.intake.send_commit import SendCommit
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.topics import MILLISECOND
from snavio.clock import Clock
from snavio.domain.identity import Identity
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, FrameTooLarge, NotAllowed, Saturated
from snavio.native import group_topics, read_message_groups
from snavio.ports.mailbox_store import Keys, MailboxStore, NewBatch, Send
from snavio.v1.mailbox_pb2 import GroupRefusal, SendAllResponse

_NEW = Verdict.DELIVERED
_WORDS = {
    Verdict.CONFLICT: ("conflict", "An idem_key was used with another payload."),
    Verdict.SATURATED: ("saturated", "The replay window holds all the keys it may."),
    Verdict.DUPLICATE: ("duplicate", "An idem_key was used before, and the group refuses that."),
}


_Demand = tuple[int, int, int, int, int]
"""Group, number of the topic, shard, copies, bytes."""
_TAG = struct.Struct("<I")


@dataclass(slots=True)
class _Request:
    """The part of a request that is to be stored, and the answers for the rest."""

    batches: list[NewBatch] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """Of every message of the batches, in order, its place in the answer."""
    copies: Sequence[int] = ()
    """Of every group."""
    demands: Sequence[_Demand] = ()
    refusals: dict[int, GroupRefusal] = field(default_factory=dict)
    full: set[int] = field(default_factory=set)
    """Groups for which there is no room."""


class GroupIntake:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        store: MailboxStore,
        commits: Commits,
        delivery: Delivery,
        storing: SendCommit,
        clock: Clock,
    ) -> None:
        self._store = store
        self._commits = commits
        self._delivery = delivery
        self._storing = storing
        self._clock = clock

    async def post(
        self,
        request: bytes,
        *,
        identity: Identity,
        cert_serial: str,
        admits: Admits,
        covers: Callable[[str], object],
    ) -> bytes:
        """Store the groups of a SendAllRequest; the serialised response. `covers` raises for a topic that the caller
        may not send to."""
        if len(request) > MAX_REQUEST_BYTES:
            raise FrameTooLarge(f"A request has at most {MAX_REQUEST_BYTES} bytes.")
        await self._commits.room()
        topics = _topics_of(request)
        for topic in topics:
            require_sender(topic, identity)
            if topic.partition("/")[0] != identity.tenant:
                raise NotAllowed("The topics of a request belong to one tenant.", reason="not-owner")
            covers(topic)
        now = self._clock.unix_ns()
        named = [(topic, self._delivery.policies.of(topic).shards) for topic in topics]

        def read(skip: Sequence[int]) -> _Request:
            found, fault = read_message_groups(
                request,
                topics=named,
                source=identity.source,
                cert_serial=cert_serial,
                scope=identity.tenant,
                now_unix_ns=now,
                secret=self._store.replay_secret,
                skip=list(skip),
            )
            if fault is not None or found is None:
                raise refused(*(fault or (-1, "malformed", "The request cannot be read.")))
            rows, demands, copies, bad, keyed = found
            one = _Request(copies=copies, demands=demands)
            for group, reason, sentence in bad:
                one.refusals[group] = GroupRefusal(group=group, reason=reason, detail=sentence)
            for row in rows:
                self._add(one, topics, row, keyed=keyed, now_unix_ns=now)
            return one

        asked = read(())
        wanted: Counter[str] = Counter()
        for batch in asked.batches:
            wanted[batch.topic] += batch.count
        for topic, messages in wanted.items():
            await self._storing.prepare(topic, messages)
        committed = None
        try:
            committed = await self._store_all(asked, admits)
        except Saturated as full:
            # Whatever of it has room is not to wait for the rest. Nothing of it was handed to the disk.
            without = self._without_room(asked, topics)
            again = read(without) if without else asked
            again.refusals |= asked.refusals
            _refuse(again, without, full)
            asked = again
            if without and asked.batches:
                try:
                    committed = await self._store_all(asked, admits)
                except Saturated as still:
                    full = still
            if committed is None:
                _refuse(asked, range(len(asked.copies)), full)
        return _response(asked, committed)

    async def _store_all(self, asked: _Request, admits: Admits) -> tuple[Send, Committed] | None:
        if not asked.batches:
            return None
        taken = admits(asked.batches[0].topic, len(asked.places))
        if not isinstance(taken, QuotaTake):
            raise stopped(*taken)
        send = Send(None, bytes([_NEW]) * len(asked.places), tuple(asked.batches))
        return send, await self._storing.store(send, (taken,))

    def _without_room(self, asked: _Request, topics: Sequence[str]) -> list[int]:
        """The groups that do not fit into their topics behind those before them."""
        room: dict[tuple[int, int], int] = {}
        without: list[int] = []
        for group, demands in groupby(asked.demands, key=itemgetter(0)):
            wanted: Counter[tuple[int, int]] = Counter()
            for _, topic, shard, copies, _ in demands:
                wanted[topic, shard] += copies
            for place in wanted.keys() - room.keys():
                room[place] = self._delivery.overflow.room(topics[place[0]], place[1])
            if any(copies > room[place] for place, copies in wanted.items()):
                without.append(group)
                continue
            for place, copies in wanted.items():
                room[place] -= copies
        return without

    def _add(
        self,
        asked: _Request,
        topics: Sequence[str],
        row: tuple[int, int, int, int, bytes, bytes, list[int], bytes],
        *,
        keyed: bool,
        now_unix_ns: int,
    ) -> None:
        number, shard, delay_ms, replay_ms, runs, columns, places, groups = row
        topic = topics[number]
        most = self._delivery.limits.max_delay_ms
        if delay_ms > most:
            raise BadRequest(f"delay_ms is over {most}.", reason="delay")
        keys = Keys(columns, replay_ms or self._delivery.policies.of(topic).replay_ms) if keyed else None
        asked.batches.append(
            NewBatch(
                topic,
                len(places),
                runs,
                keys,
                len(asked.places),
                shard,
                not_before_unix_ns=now_unix_ns + delay_ms * MILLISECOND if delay_ms else 0,
                groups=groups if keyed else b"",
            )
        )
        asked.places += places


def _topics_of(request: bytes) -> list[str]:
    try:
        return group_topics(request)
    except ValueError as error:
        raise BadRequest(str(error), reason="malformed") from None


def _refuse(asked: _Request, groups: Iterable[int], full: Saturated) -> None:
    """Say of these groups that there was no room, unless something was wrong with them before."""
    for group in groups:
        if group not in asked.refusals:
            asked.full.add(group)
            asked.refusals[group] = GroupRefusal(
                group=group, reason=full.reason, detail=str(full), retry_after_ms=full.retry_after_ms
            )


def _response(asked: _Request, committed: tuple[Send, Committed] | None) -> bytes:
    """The serialised SendAllResponse."""
    told, codes = [0] * sum(asked.copies), bytearray(sum(asked.copies))
    if committed is not None:
        send, stored = committed
        assert stored.recognised is not None
        found = stored.recognised.send.codes
        for place, msg_id, code in zip(asked.places, ids_of(send, stored), found, strict=True):
            told[place], codes[place] = msg_id, code
        if found.strip(bytes([_NEW])):
            _tell_refused(asked, codes, stored.recognised.retry_after_ms)
    starts = [0, *accumulate(asked.copies)]
    for group in asked.full:
        codes[starts[group] : starts[group + 1]] = bytes([Verdict.SATURATED]) * asked.copies[group]
    refusals = [asked.refusals[group] for group in sorted(asked.refusals)]
    response = SendAllResponse(msg_id=told, codes=bytes(codes), refusal=refusals)
    serialised: bytes = response.SerializeToString()
    return serialised


def _tell_refused(asked: _Request, codes: bytes | bytearray, retry_after_ms: int) -> None:
    """Note the groups of which nothing is stored because of what some of their messages are."""
    tags = {tag for batch in asked.batches for (tag,) in _TAG.iter_unpack(batch.groups)}
    starts = [0, *accumulate(asked.copies)]
    for tag in tags:
        group, refuses_duplicates = tag >> 1, tag & 1
        own = codes[starts[group] : starts[group + 1]]
        for verdict, (reason, sentence) in _WORDS.items():
            if verdict in own and (refuses_duplicates or verdict is not Verdict.DUPLICATE):
                hint = retry_after_ms if verdict is Verdict.SATURATED else 0
                asked.refusals[group] = GroupRefusal(
                    group=group, reason=reason, detail=sentence, retry_after_ms=hint
                )
                break
