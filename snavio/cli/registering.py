"""Writes a registration in as many calls to Registry as it takes: each of them whole, or not at all.

Never begins to write a large one before all of it was found right, each entry together with those that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from snavio.domain.directory import (
    AclEntry,
    AlertChannel,
    Principal,
    ProfileLimit,
    QueueKind,
    Route,
    Service,
    SourceQuota,
    Target,
    Tenant,
    TopicRule,
    Value,
)
from snavio.errors import SnavioError

if TYPE_CHECKING:
    from snavio.admin.directory import DirectoryClient, Triple
    from snavio.cli.registration import Registration
    from snavio.v1 import registry_pb2 as wire

MOST_AT_ONCE: Final = 1000
"""Entries of one call; Registry takes no more."""
MOST_QUEUES: Final = 50
"""Queues of one call that are not the mailbox's; Registry proves no more."""
MOST_CHECKED: Final = 100

Place = tuple[str, ...]


@dataclass
class Registered:
    """The outcome of a registration, or of asking what it would be."""

    triples: Sequence[Triple]
    """Those that were asked about, in the order of `check`."""
    version: int = 0
    changed: bool = False
    parts: int = 1
    enrolment: list[wire.TenantEnrolment] = field(default_factory=list)
    _checks: dict[Triple, wire.CheckResponse] = field(default_factory=dict)
    _differences: dict[Place, wire.Difference] = field(default_factory=dict)

    @property
    def check(self) -> list[wire.CheckResponse]:
        """The forecast of each triple."""
        return [self._checks[triple] for triple in self.triples]

    @property
    def difference(self) -> list[wire.Difference]:
        """The change of each entry, told once though several calls changed it."""
        return list(self._differences.values())

    def add(self, answer: wire.ApplyResponse, checked: Sequence[Triple]) -> None:
        """Take the answer of one call."""
        from snavio.replication.directory_wire import entry_from_wire

        self.version = answer.version
        self.changed = self.changed or answer.changed
        self.enrolment += answer.enrolment
        self._checks.update(zip(checked, answer.check, strict=True))
        for difference in answer.difference:
            entry = difference.after if difference.HasField("after") else difference.before
            value = entry_from_wire(entry, "difference")
            first = self._differences.setdefault((value.kind, *value.key), difference)
            if first is not difference:
                first.after.CopyFrom(difference.after)


async def register(
    client: DirectoryClient,
    wanted: Registration,
    *,
    reason: str,
    dry_run: bool = False,
    say: Callable[[str], None],
) -> Registered:
    """Write a registration, or with `dry_run` only ask; `say` hears how far a large one is.

    Conflict with every mistake and its line, before anything is written; an error later on says what is written.
    """
    parts = in_parts(wanted.values)
    done = Registered(wanted.triples[:MOST_CHECKED], parts=len(parts))
    if dry_run or len(parts) > 1:
        tried = await _try(client, wanted, done.triples, reason=reason)
        if dry_run:
            tried.parts = len(parts)
            return tried
    total, written = len(wanted.values), 0
    if len(parts) > 1:
        say(f"{total:,} entries are more than one call takes: they are written in {len(parts)}.")
    for number, part in enumerate(parts, start=1):
        checked = done.triples if number == len(parts) else ()
        try:
            answer = await client.apply(
                wanted.values[part.start : part.stop], reason=reason, check=checked, tell_mistakes=True
            )
            if answer.mistake:
                found = [(part.start + one.write, one.message) for one in answer.mistake]
                raise wanted.refused(found, more=answer.more_mistakes, written=written)
        except SnavioError as error:
            if written:
                error.args = (f"{str(error).rstrip()} {_so_far(wanted, written)}",)
            raise
        done.add(answer, checked)
        written = part.stop
        if len(parts) > 1:
            say(f"  {number} of {len(parts)}: {written:,} entries are written.")
    return done


async def _try(
    client: DirectoryClient, wanted: Registration, triples: Sequence[Triple], *, reason: str
) -> Registered:
    """Ask what writing all of it would change."""
    tried = Registered(triples)
    asked = set(triples)
    mistakes: dict[int, str] = {}
    more = 0
    for numbers in rehearsals(wanted.values):
        values = [wanted.values[number] for number in numbers]
        new = {_triple(value) for value in values if isinstance(value, AclEntry)} & asked
        checked = [triple for triple in triples if triple in new]
        asked -= new
        answer = await client.apply(values, reason=reason, dry_run=True, check=checked, tell_mistakes=True)
        mistakes |= {numbers[one.write]: one.message for one in answer.mistake}
        more += answer.more_mistakes
        if not answer.mistake:
            tried.add(answer, checked)
    if mistakes:
        raise wanted.refused(list(mistakes.items()), more=more)
    return tried


def in_parts(values: Sequence[Value]) -> list[range]:
    """The calls that write them, in their order: each entry comes after those that it needs."""
    parts: list[range] = []
    begin, queues = 0, set[Place]()
    for number, value in enumerate(values):
        more = _queues(value)
        if number - begin == MOST_AT_ONCE or len(queues | more) > MOST_QUEUES:
            parts.append(range(begin, number))
            begin, queues = number, set()
        queues |= more
    return [*parts, range(begin, len(values))]


def rehearsals(values: Sequence[Value]) -> Iterator[list[int]]:
    """The numbers of entries that can be tried together, since each is there with those that it needs."""
    numbers = {(value.kind, *value.key): number for number, value in enumerate(values)}
    together, queues = set[int](), set[Place]()
    for number in range(len(values)):
        needed: set[int] = set()
        _need(number, values, numbers, needed)
        more = set[Place]().union(*(_queues(values[each]) for each in needed))
        if len(together | needed) > MOST_AT_ONCE or len(queues | more) > MOST_QUEUES:
            yield sorted(together)
            together, queues = set(), set()
        together |= needed
        queues |= more
    yield sorted(together)


def _need(number: int, values: Sequence[Value], numbers: dict[Place, int], needed: set[int]) -> None:
    """Add an entry and all of the registration that it needs, or that decides what its commands would meet."""
    if number in needed:
        return
    needed.add(number)
    for place in _places(values[number]):
        if place in numbers:
            _need(numbers[place], values, numbers, needed)


def _places(value: Value) -> tuple[Place, ...]:
    match value:
        case Principal() | Service() | Target() | AlertChannel() | TopicRule():
            return ((Tenant.kind, value.tenant),)
        case ProfileLimit():
            return ((Target.kind, value.target),)
        case Route():
            limit = (ProfileLimit.kind, value.target, value.profile.name.lower())
            return ((Target.kind, value.target), limit)
        case AclEntry() | SourceQuota():
            route = (Route.kind, value.target, value.name)
            quota = (SourceQuota.kind, *value.key)
            return ((Service.kind, *value.source.split("/")), route, quota)
        case _:
            return ()


def _queues(value: Value) -> set[Place]:
    if isinstance(value, Route) and value.queue_kind is not QueueKind.MAILBOX:
        return {(value.queue_kind.name, value.target)}
    return set()


def _triple(right: AclEntry) -> Triple:
    return right.source, right.target, right.name


def _so_far(wanted: Registration, written: int) -> str:
    line = wanted.lines[written - 1]
    return (
        f"Of {len(wanted.values):,} entries the first {written:,} are written, the last of them that of line {line}: "
        "register the same file again to go on; what is written is not written twice."
    )
