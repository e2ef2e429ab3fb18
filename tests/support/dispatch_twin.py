"""A slow and obvious twin of the native plan and of the native ledger.

It must never share code with the native side: it is what the native code is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.support.frames import Hint, RunOf, Said

SECOND_NS = 1_000_000_000
DELIVERED = 1
DUPLICATE = 2
MALFORMED = 16
ROUTE_MISSING = 66
SATURATED = 70

CACHE_MISS = 1
ACL_EXPIRED = 2
ROUTE_EXPIRED = 3
DEDUPE_REQUIRED = 4
TOKEN_REQUIRED = 5
WARM_BANNED = 6
COLD_ONLY = 7
SYNC = 8

SYNC_PROFILE = 4
# Profile -> the age in seconds from which an ACL entry is stale, and from which it is expired.
ACL_PHASES = {0: (30, 90), 1: (2, 4), 2: (10, 20), 3: (30, 90)}

WARM_BAN_LIST = 1
COLD_ONLY_LIST = 2
FAIRNESS = (30, 0.8, 0.1, 2, 50, 30)
"""(window seconds, dominant share, competing share, competitors, minimum volume, ban seconds)."""
DEDUPE_S = 300
UNKNOWN_S = 2

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class RouteTwin:
    """Destination of commands of one name."""

    queue: int
    topic: str
    profile: int
    strict: bool
    cold_only: bool = False
    limit: str = "none"
    """`none`, `holds` or `watches`."""
    fairness: tuple[int, float, float, int, int, int] = FAIRNESS


@dataclass(frozen=True, slots=True)
class OwnTwin:
    """A right's own profile, 0 for its route's, and its end on the authority's clock, 0 for none."""

    profile: int = 0
    ends: int = 0


@dataclass(frozen=True, slots=True)
class CommandTwin:
    """A command's bytes with what they say: (target, name), or None for bytes that are no command."""

    body: bytes
    key: tuple[str, str] | None
    identity: str = ""
    """Its id and payload; what a duplicate must share."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The decision about one command: exactly one of the three."""

    settled: int = 0
    escalated: int = 0
    sent_to: tuple[int, str] | None = None
    stale: bool = False
    unknown: bool = False
    """It was escalated because its route is not known."""


@dataclass(slots=True)
class PlanTwin:
    """The decisions about a batch."""

    count: int
    settled: dict[int, int]
    # queue -> [(topic, runs)], both in order of first appearance
    sends: dict[int, list[tuple[str, list[RunOf]]]]
    # source -> [(reason, runs)], both in order of first appearance
    escalations: dict[str, list[tuple[int, list[RunOf]]]]
    # position in the part -> index in the batch; one per queue, then one per source that is escalated
    parts: list[list[int]]
    stale_used: bool
    warm_bans: list[tuple[Key, float, float, int]]
    unknown: dict[Key, int]
    """Routes that Slow was asked for -> the first command that asks."""
    strict: dict[int, tuple[str, CommandTwin]]
    """index -> (source, command) of strict routes."""


@dataclass(slots=True)
class WindowTwin:
    """Dispatches and demand of each source on a route."""

    began: int
    offered: dict[str, int] = field(default_factory=dict)
    dispatched: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class DispatchTwin:
    """Routes, rights and lists with the rules for using them, and what traffic has left behind."""

    routes: dict[tuple[str, str], RouteTwin] = field(default_factory=dict)
    acls: set[Key] = field(default_factory=set)
    read_mono_ns: int | None = None
    route_fresh_s: int = 60
    route_stale_s: int = 180
    everything_cold: bool = False
    bans: dict[tuple[int, str, str, str], int] = field(default_factory=dict)
    """(list, source, target, name) -> until; target and name are empty for all."""
    permits: dict[tuple[str, ...], list[tuple[int, int]]] = field(default_factory=dict)
    """One (end, number) for each grant, by route or by source and route."""
    windows: dict[tuple[str, str], WindowTwin] = field(default_factory=dict)
    local_bans: dict[Key, int] = field(default_factory=dict)
    asked: dict[str, dict[tuple[str, str], tuple[int, bool]]] = field(default_factory=dict)
    """source -> route -> (until, whether Slow said that there is none)."""
    delivered: dict[tuple[str, str], tuple[tuple[str, str], int]] = field(default_factory=dict)
    """(source, identity) -> (route, until)."""
    unknown_per_source: int = 1024
    own: dict[Key, OwnTwin] = field(default_factory=dict)
    """Profiles and ends of single rights."""
    source_limits: dict[Key, str] = field(default_factory=dict)
    """`holds` or `watches`: the source's own limit on a route."""
    authority_ns: int | None = None
    """The authority's clock less ours: never moved back."""

    def judge(self, key: Key, commands: Sequence[CommandTwin], now: int) -> list[Outlook]:
        """Decides about the commands of one lane, in order."""
        source, target, name = key
        count = len(commands)
        if self.everything_cold:
            return [Outlook(escalated=COLD_ONLY)] * count
        route = self.routes.get((target, name))
        if route is None:
            return [self._judge_unknown(key, now)] * count
        stands = key in self.acls and not self._ended(key, now)
        profile = (self.own[key].profile if stands and key in self.own else 0) or route.profile
        if profile == SYNC_PROFILE:
            return [Outlook(escalated=SYNC)] * count
        if self.read_mono_ns is None:
            return [Outlook(escalated=ROUTE_EXPIRED)] * count
        age = max(now - self.read_mono_ns, 0)
        if age >= self.route_stale_s * SECOND_NS:
            return [Outlook(escalated=ROUTE_EXPIRED)] * count
        fresh_s, stale_s = ACL_PHASES[profile]
        if age >= stale_s * SECOND_NS:
            return [Outlook(escalated=ACL_EXPIRED)] * count
        if not stands:
            return [Outlook(escalated=CACHE_MISS)] * count
        stale = age >= min(fresh_s, self.route_fresh_s) * SECOND_NS

        def everybody(reason: int) -> list[Outlook]:
            return [Outlook(escalated=reason, stale=stale)] * count

        if route.cold_only or self._listed(COLD_ONLY_LIST, key, now):
            return everybody(COLD_ONLY)
        if self._listed(WARM_BAN_LIST, key, now) or now < self.local_bans.get(key, now):
            return everybody(WARM_BANNED)
        if route.strict:
            return [
                Outlook(settled=DUPLICATE, stale=stale)
                if self._was_delivered(source, command, now)
                else Outlook(escalated=DEDUPE_REQUIRED, stale=stale)
                for command in commands
            ]
        limits: list[tuple[tuple[str, ...], str]] = [(key, self.source_limits.get(key, "none"))]
        limits.append(((target, name), route.limit))
        # As many as every limit that holds has permits for; each of them costs one of each.
        going = min([count, *(self._left(limit, now) for limit, how in limits if how == "holds")])
        for limit, how in limits:
            if how != "none":
                self._take(limit, going, now)
        sent = Outlook(sent_to=(route.queue, route.topic), stale=stale)
        return [sent] * going + [Outlook(escalated=TOKEN_REQUIRED, stale=stale)] * (count - going)

    def _judge_unknown(self, key: Key, now: int) -> Outlook:
        source, target, name = key
        asked = {route: told for route, told in self.asked.get(source, {}).items() if now < told[0]}
        self.asked[source] = asked
        if (target, name) in asked:
            missing = asked[target, name][1]
            return Outlook(settled=ROUTE_MISSING) if missing else Outlook(escalated=CACHE_MISS, unknown=True)
        if len(asked) >= self.unknown_per_source:
            return Outlook(settled=SATURATED)
        asked[target, name] = (now + UNKNOWN_S * SECOND_NS, False)
        return Outlook(escalated=CACHE_MISS, unknown=True)

    def _listed(self, number: int, key: Key, now: int) -> bool:
        named = self.bans.get((number, *key), now)
        every = self.bans.get((number, key[0], "", ""), now) if number == COLD_ONLY_LIST else now
        return now < named or now < every

    def _was_delivered(self, source: str, command: CommandTwin, now: int) -> bool:
        route, until = self.delivered.get((source, command.identity), (None, now))
        return route == command.key and now < until

    def _ended(self, key: Key, now: int) -> bool:
        ends = self.own[key].ends if key in self.own else 0
        return bool(ends) and (self.authority_ns is None or self.authority_ns + now >= ends)

    def heard_time(self, unix_ns: int, now: int) -> None:
        """The authority says what time it is."""
        told = unix_ns - now
        self.authority_ns = told if self.authority_ns is None else max(self.authority_ns, told)

    def _left(self, limit: tuple[str, ...], now: int) -> int:
        return sum(number for end, number in self.permits.get(limit, []) if now < end)

    def _take(self, route: tuple[str, ...], count: int, now: int) -> int:
        held = sorted(grant for grant in self.permits.get(route, []) if now < grant[0])
        taken = min(count, sum(number for _, number in held))
        left, rest = taken, []
        for end, number in held:
            used = min(left, number)
            left -= used
            rest.append((end, number - used))
        self.permits[route] = [grant for grant in rest if grant[1]]
        return taken

    def grant(self, limit: tuple[str, ...], number: int, ends: int, now: int) -> bool:
        """Permits from the authority, of a route or of one source on it."""
        if len(limit) == 3:
            how = self.source_limits.get((limit[0], limit[1], limit[2]), "none")
        else:
            how = self.routes[limit[0], limit[1]].limit if limit in self.routes else "none"
        if how == "none" or now >= ends:
            return False
        self.permits.setdefault(limit, []).append((ends, number))
        return True

    def _note(self, key: Key, offered: int, sent: int, now: int) -> tuple[Key, float, float, int] | None:
        """Counts what passed the ACL; the ban that it leads to."""
        source, target, name = key
        window_s, dominant, competing, competitors, volume, ban_s = self.routes[target, name].fairness
        window = self.windows.get((target, name))
        if window is None or now - window.began >= window_s * SECOND_NS:
            window = self.windows[target, name] = WindowTwin(now)
        window.offered[source] = window.offered.get(source, 0) + offered
        window.dispatched[source] = window.dispatched.get(source, 0) + sent
        all_offered, all_sent = sum(window.offered.values()), sum(window.dispatched.values())
        others = all_offered - window.offered[source]
        rivals = sum(number >= 5 for other, number in window.offered.items() if other != source)
        contended = others >= competing * all_offered or rivals >= competitors
        mine = window.dispatched[source]
        if not sent or all_sent < volume or mine <= dominant * all_sent or not contended:
            return None
        self.local_bans[key] = now + ban_s * SECOND_NS
        del self.windows[target, name]
        return key, mine / all_sent, others / all_offered, all_sent

    def plan(self, runs: Sequence[tuple[RunOf, Sequence[CommandTwin]]], now_mono_ns: int) -> PlanTwin:
        """Decides about a batch, lane by lane in order of first appearance."""
        told = [(number, run, command) for number, (run, commands) in enumerate(runs) for command in commands]
        lanes: dict[Key, list[int]] = {}
        judged = [Outlook(settled=MALFORMED)] * len(told)
        for index, (_, run, command) in enumerate(told):
            if command.key is not None:
                lanes.setdefault((run.source, *command.key), []).append(index)
        warm_bans = []
        for key, members in lanes.items():
            outlooks = self.judge(key, [told[index][2] for index in members], now_mono_ns)
            for index, outlook in zip(members, outlooks, strict=True):
                judged[index] = outlook
            # What passed the ACL is what was neither settled for want of a route nor escalated before it.
            if outlooks[0].settled in (0, DUPLICATE) and outlooks[0].escalated not in BEFORE_THE_ACL:
                # Who is kept off the warm path does not compete for it.
                if outlooks[0].escalated in (COLD_ONLY, WARM_BANNED):
                    continue
                sent = sum(outlook.sent_to is not None for outlook in outlooks)
                ban = self._note(key, len(members), sent, now_mono_ns)
                if ban is not None:
                    warm_bans.append(ban)

        def grouped(indices: list[int]) -> list[RunOf]:
            """The commands in runs; a new one wherever the run they came in changes."""
            out: list[tuple[int, RunOf]] = []
            for index in indices:
                run_number, run, command = told[index]
                if out and out[-1][0] == run_number:
                    last = out[-1][1]
                    out[-1] = (run_number, replace(last, commands=[*last.commands, command.body]))
                else:
                    out.append((run_number, replace(run, commands=[command.body])))
            return [run for _, run in out]

        topics: dict[tuple[int, str], list[int]] = {}
        cold: dict[str, dict[int, list[int]]] = {}
        for index, outlook in enumerate(judged):
            if outlook.sent_to is not None:
                topics.setdefault(outlook.sent_to, []).append(index)
            elif outlook.escalated:
                cold.setdefault(told[index][1].source, {}).setdefault(outlook.escalated, []).append(index)
        sends: dict[int, list[tuple[str, list[RunOf]]]] = {}
        parts: dict[int, list[int]] = {}
        for (queue, topic), indices in topics.items():
            sends.setdefault(queue, []).append((topic, grouped(indices)))
            parts.setdefault(queue, []).extend(indices)
        return PlanTwin(
            count=len(judged),
            settled={index: outlook.settled for index, outlook in enumerate(judged) if outlook.settled},
            sends=sends,
            escalations={
                source: [(reason, grouped(indices)) for reason, indices in reasons.items()]
                for source, reasons in cold.items()
            },
            parts=[
                *parts.values(),
                *([index for indices in reasons.values() for index in indices] for reasons in cold.values()),
            ],
            stale_used=any(outlook.stale for outlook in judged),
            warm_bans=warm_bans,
            unknown={key: members[0] for key, members in lanes.items() if judged[members[0]].unknown},
            strict={
                index: (told[index][1].source, told[index][2])
                for index, outlook in enumerate(judged)
                if outlook.escalated == DEDUPE_REQUIRED
            },
        )

    def learn(self, plan: PlanTwin, codes: Sequence[int], planned: int) -> None:
        """Takes what Slow's answers teach."""
        for (source, target, name), index in plan.unknown.items():
            asked = self.asked.get(source, {})
            if codes[index] == ROUTE_MISSING and (target, name) in asked:
                asked[target, name] = (asked[target, name][0], True)
        for index, (source, command) in plan.strict.items():
            if codes[index] == DELIVERED:
                assert command.key is not None
                until = planned + DEDUPE_S * SECOND_NS
                self.delivered[source, command.identity] = (command.key, until)


BEFORE_THE_ACL = {CACHE_MISS, ACL_EXPIRED, ROUTE_EXPIRED, SYNC}


@dataclass(slots=True)
class LedgerTwin:
    """Commands that still wait for an answer."""

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
            if 0 <= position < len(members):
                at = members[position]
                # A duplicate may come with the place of its first one.
                if (code := new.get(at, 0)) >= 16 or code == DUPLICATE:
                    translated.append((at, code, retry_after_ms, throttle_until, detail))
        placed = {at for at, code, *_ in translated if code == DUPLICATE}
        if placed:
            # One place is not that of the other duplicates: each has a word of its own, if an empty one.
            translated += [
                (at, code, 0, 0, "") for at, code in new.items() if code == DUPLICATE and at not in placed
            ]
            translated.sort(key=lambda hint: hint[0])
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
