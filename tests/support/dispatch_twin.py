"""A slow and obvious twin of the native plan and of the native ledger.

It must never share code with the native side: it is what the native code is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.support.frames import Hint, RunOf, Said

SECOND_NS = 1_000_000_000
MALFORMED = 16

CACHE_MISS = 1
ACL_EXPIRED = 2
ROUTE_EXPIRED = 3
DEDUPE_REQUIRED = 4
SYNC = 8

SYNC_PROFILE = 4
# Profile -> the age in seconds from which an ACL entry is stale, and from which it is expired.
ACL_PHASES = {0: (30, 90), 1: (2, 4), 2: (10, 20), 3: (30, 90)}


@dataclass(frozen=True, slots=True)
class RouteTwin:
    """Where commands of one name go."""

    queue: int
    topic: str
    profile: int
    strict: bool


@dataclass(frozen=True, slots=True)
class CommandTwin:
    """A command's bytes with what they say: (target, name), or None for bytes that are no command."""

    body: bytes
    key: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is decided about one command: exactly one of the three."""

    refused: bool = False
    escalated: int = 0
    sent_to: tuple[int, str] | None = None
    stale: bool = False


@dataclass(slots=True)
class PlanTwin:
    """What becomes of a batch."""

    count: int
    refused: dict[int, int]
    # queue -> [(topic, runs)], both in order of first appearance
    sends: dict[int, list[tuple[str, list[RunOf]]]]
    escalations: list[tuple[int, list[RunOf]]]
    # position in the part -> index in the batch; the last part is the escalations
    parts: list[list[int]]
    stale_used: bool


@dataclass(slots=True)
class DispatchTwin:
    """Routes and ACLs with the rules for using them."""

    routes: dict[tuple[str, str], RouteTwin] = field(default_factory=dict)
    acls: set[tuple[str, str, str]] = field(default_factory=set)
    read_mono_ns: int | None = None
    route_fresh_s: int = 60
    route_stale_s: int = 180

    def judge(self, source: str, command: CommandTwin, now_mono_ns: int) -> Outlook:
        """Decides about one command."""
        if command.key is None:
            return Outlook(refused=True)
        target, name = command.key
        route = self.routes.get((target, name))
        if route is None:
            return Outlook(escalated=CACHE_MISS)
        if route.profile == SYNC_PROFILE:
            return Outlook(escalated=SYNC)
        if self.read_mono_ns is None:
            return Outlook(escalated=ROUTE_EXPIRED)
        age = now_mono_ns - self.read_mono_ns
        if age >= self.route_stale_s * SECOND_NS:
            return Outlook(escalated=ROUTE_EXPIRED)
        fresh_s, stale_s = ACL_PHASES[route.profile]
        if age >= stale_s * SECOND_NS:
            return Outlook(escalated=ACL_EXPIRED)
        if (source, target, name) not in self.acls:
            return Outlook(escalated=CACHE_MISS)
        stale = age >= min(fresh_s, self.route_fresh_s) * SECOND_NS
        if route.strict:
            return Outlook(escalated=DEDUPE_REQUIRED, stale=stale)
        return Outlook(sent_to=(route.queue, route.topic), stale=stale)

    def plan(self, runs: Sequence[tuple[RunOf, Sequence[CommandTwin]]], now_mono_ns: int) -> PlanTwin:
        """Decides about a batch."""
        judged = [
            (run_number, run, command, self.judge(run.source, command, now_mono_ns))
            for run_number, (run, commands) in enumerate(runs)
            for command in commands
        ]
        topics: dict[tuple[int, str], list[int]] = {}
        reasons: dict[int, list[int]] = {}
        for index, (_, _, _, outlook) in enumerate(judged):
            if outlook.sent_to is not None:
                topics.setdefault(outlook.sent_to, []).append(index)
            elif outlook.escalated:
                reasons.setdefault(outlook.escalated, []).append(index)

        def grouped(indices: list[int]) -> list[RunOf]:
            """The commands in runs; a new one wherever the run they came in changes."""
            out: list[tuple[int, RunOf]] = []
            for index in indices:
                run_number, run, command, _ = judged[index]
                if out and out[-1][0] == run_number:
                    last = out[-1][1]
                    out[-1] = (run_number, replace(last, commands=[*last.commands, command.body]))
                else:
                    out.append((run_number, replace(run, commands=[command.body])))
            return [run for _, run in out]

        sends: dict[int, list[tuple[str, list[RunOf]]]] = {}
        parts: dict[int, list[int]] = {}
        for (queue, topic), indices in topics.items():
            sends.setdefault(queue, []).append((topic, grouped(indices)))
            parts.setdefault(queue, []).extend(indices)
        return PlanTwin(
            count=len(judged),
            refused={index: MALFORMED for index, entry in enumerate(judged) if entry[3].refused},
            sends=sends,
            escalations=[(reason, grouped(indices)) for reason, indices in reasons.items()],
            parts=[*parts.values(), [index for indices in reasons.values() for index in indices]],
            stale_used=any(outlook.stale for *_, outlook in judged),
        )


@dataclass(slots=True)
class LedgerTwin:
    """Who still waits for an answer."""

    batch_seq: int
    count: int
    parts: list[list[int]]
    decided: dict[int, int]

    def merge(
        self, part: int, offset: int, first: int, codes: Sequence[int], hints: Sequence[Hint]
    ) -> Said | None:
        """Takes a reply; None when it decides nothing new."""
        if part >= len(self.parts):
            return None
        members = self.parts[part]
        new: dict[int, int] = {}
        for place, code in enumerate(codes):
            position = first + place - offset
            if code and 0 <= position < len(members) and members[position] not in self.decided:
                new[members[position]] = code
        translated = []
        for index, _, retry_after_ms, throttle_until, detail in hints:
            position = index - offset
            if 0 <= position < len(members) and new.get(members[position], 0) >= 16:
                at = members[position]
                translated.append((at, new[at], retry_after_ms, throttle_until, detail))
        return self._settle(new, translated)

    def close(self, members: Sequence[int], code: int, retry_after_ms: int, detail: str) -> Said | None:
        """Decides what is undecided among `members`."""
        open_members = [index for index in members if index not in self.decided]
        hints = [(open_members[0], code, retry_after_ms, 0, detail)] if open_members and code >= 16 else []
        return self._settle(dict.fromkeys(open_members, code), hints)

    def _settle(self, new: dict[int, int], hints: Sequence[Hint]) -> Said | None:
        if not new:
            return None
        self.decided |= new
        return Said(self.batch_seq, new, tuple(hints), len(self.decided) == self.count)
