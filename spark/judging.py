"""The sequential test behind every proposal: windows go in one after the other, alarms come out.

Pure: no Spark, no clock, no file. The jobs, the audit and the report of detection quality all run this code on the
same rows, so that a figure about one is a figure about all. Whole numbers only: what a sum of fractions says depends
on the order of its rows, and a run that is repeated must say the same.

A window in which a source held most of a route's permits while others went without adds points; every other window
takes one away. A single burst therefore ends below the alarm, and who comes again and again reaches it. Windows in
which the source was kept off the warm path count neither way: a ban that works must not clear whom it keeps off.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from spark.policy import DetectionPolicy

DOMINANCE_ONE: Final = "dominance-single-target"
DOMINANCE_MANY: Final = "dominance-several-targets"
MILLI: Final = 1000
MOST_RUNS: Final = 20_000
"""Sources under suspicion at one time; beyond it those with the fewest points are let go."""
MOST_VICTIMS: Final = 5
MOST_TARGETS: Final = 100
COURSE: Final = 40
"""Windows that the plot of a proposal has; its evidence may have 2048 characters."""
NEAR_BOUNDARY: Final = 2
"""Windows by which late events can move an alarm."""


@dataclass(frozen=True, slots=True)
class Crowding:
    """A window in which one source held most of a route's permits, and others that count went without."""

    window: int
    """Its begin, seconds since the epoch."""
    source: str
    target: str
    command_name: str
    taken: int
    """Permits that the source held."""
    volume: int
    """Permits that were held in all, while the source competed."""
    rivals: int
    """Others that offered enough to count."""
    rivals_offered: int
    rivals_hurt: int
    """Of their offers, those that were limited or found the target saturated."""
    rivals_waited: int
    """Of their offers, those that had to wait for a permit."""
    least_milli: int
    """The share above which this route calls a holder dominant, in thousandths."""
    victims: tuple[tuple[str, int], ...] = ()
    """The sources that were hurt most, and how often."""

    @property
    def share_milli(self) -> int:
        """Its share of the permits, in thousandths."""
        return self.taken * MILLI // self.volume if self.volume else 0

    @property
    def dominant(self) -> bool:
        """True if its share is above what the route allows one source."""
        return self.taken * MILLI > self.least_milli * self.volume


@dataclass(frozen=True, slots=True)
class Refusals:
    """A window in which a source sent more that had to be refused than anybody does by mistake."""

    window: int
    source: str
    kind: str
    bad: int
    excess: int
    """The part beyond the allowance."""
    sent: int
    targets: tuple[str, ...] = ()


@dataclass(slots=True)
class Run:
    """The points against one source, for one kind of abuse."""

    points: int = 0
    last: int = 0
    """The window of the last row."""
    since: int = 0
    windows: int = 0
    taken: int = 0
    volume: int = 0
    rivals_offered: int = 0
    rivals_hurt: int = 0
    rivals_waited: int = 0
    bad: int = 0
    sent: int = 0
    targets: list[str] = field(default_factory=list)
    victims: dict[str, int] = field(default_factory=dict)
    course: list[tuple[int, int, int]] = field(default_factory=list)
    """(window, share, harm) in percent, for the plot."""

    def add_targets(self, names: Iterable[str]) -> None:
        """Remember targets, up to as many as a proposal names."""
        for name in names:
            if name not in self.targets and len(self.targets) < MOST_TARGETS:
                self.targets.append(name)

    def hurt(self, victims: Iterable[tuple[str, int]]) -> None:
        """Remember who suffered; the table stays small, and those who suffered most stay in it."""
        counts = Counter(self.victims)
        for name, number in victims:
            counts[name] += number
        self.victims = dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[: 4 * MOST_VICTIMS])


Key = tuple[str, str, str]
"""(kind, source, target); the target is empty for kinds that are about the source."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A source that has reached the policy's alarm."""

    kind: str
    source: str
    window: int
    run: Run

    def warning(self, policy: DetectionPolicy) -> dict[str, Any]:
        """The same for a source that is near: under a name of its own, it asks for no ban."""
        made = self.proposal(policy)
        name = hashlib.sha256(f"warning|{made['proposal_id']}".encode()).hexdigest()
        return {**made, "proposal_id": name, "also": [], "warning": True}

    def proposal(self, policy: DetectionPolicy) -> dict[str, Any]:
        """As the carrier reads it. The id is a hash of policy, kind, source and period, never of counts."""
        seconds = policy.period_minutes * 60
        period = self.window // seconds * seconds
        end = self.window + policy.window_seconds
        near = NEAR_BOUNDARY * policy.window_seconds
        # Late events may move an alarm over the edge of its period; an audit must not take that for another abuse.
        around = {(self.window + move) // seconds * seconds for move in (-near, near)} - {period}
        return {
            "proposal_id": proposal_id(policy, self.kind, self.source, period),
            "also": sorted(proposal_id(policy, self.kind, self.source, other) for other in around),
            "policy_version": policy.version,
            "kind": self.kind,
            "source": self.source,
            "affected_targets": sorted(self.run.targets),
            "total_violations": self.run.bad or self.run.windows,
            "window_start": _moment(period),
            "window_end": _moment(end),
            "ban_applied_until": _moment(end + policy.ban_minutes * 60),
            "evidence": json.dumps(self._evidence(policy), sort_keys=True, ensure_ascii=True),
        }

    def _evidence(self, policy: DetectionPolicy) -> dict[str, Any]:
        """The facts that a person would want to see: what share, who suffered, since when."""
        run, told = self.run, {"since": f"{_moment(self.run.since):%Y-%m-%dT%H:%M:%SZ}"}
        if not self.kind.startswith("dominance-"):
            return {**told, "refused": run.bad, "sent": run.sent, "windows": run.windows}
        first = max(run.since, self.window - (COURSE - 1) * policy.window_seconds)
        share, harm = {}, {}
        for window, one, other in run.course:
            share[window], harm[window] = one, other
        windows = range(first, self.window + 1, policy.window_seconds)
        return {
            **told,
            "source_share": round(run.taken / run.volume, 4) if run.volume else 0.0,
            "permits": run.taken,
            "of_permits": run.volume,
            "others_offered": run.rivals_offered,
            "others_refused": run.rivals_hurt,
            "others_waited": run.rivals_waited,
            "suffered": dict(list(run.victims.items())[:MOST_VICTIMS]),
            "windows": run.windows,
            "window_seconds": policy.window_seconds,
            "share_course": [share.get(window, 0) for window in windows],
            "harm_course": [harm.get(window, 0) for window in windows],
        }


def proposal_id(policy: DetectionPolicy, kind: str, source: str, period: int) -> str:
    """The name by which every job proposes the same abuse."""
    return hashlib.sha256(f"{policy.version}|{kind}|{source}|{period}".encode()).hexdigest()


@dataclass(slots=True)
class Judge:
    """State of the test. Windows come in order; those that nothing happened in need not come at all."""

    policy: DetectionPolicy
    runs: dict[Key, Run] = field(default_factory=dict)

    def crowded(
        self, window: int, found: Sequence[Crowding], kept_off: Collection[tuple[str, str]] = ()
    ) -> list[Alarm]:
        """One window of dominance; (source, target) in `kept_off` were off the warm path there."""
        alarms: list[Alarm] = []
        by_target: dict[tuple[str, str], list[Crowding]] = {}
        by_source: dict[str, list[Crowding]] = {}
        for row in sorted(found, key=lambda row: (row.source, row.target, row.command_name)):
            if row.dominant:
                by_target.setdefault((row.source, row.target), []).append(row)
            if row.taken * MILLI > self._several_milli(row) * row.volume:
                by_source.setdefault(row.source, []).append(row)
        for (source, target), rows in by_target.items():
            run = self._hit((DOMINANCE_ONE, source, target), window, rows)
            if run.points >= self.policy.alarm_points:
                alarms.append(self._alarm((DOMINANCE_ONE, source, target), window))
        for source, rows in by_source.items():
            run = self._hit((DOMINANCE_MANY, source, ""), window, rows)
            if run.points >= self.policy.alarm_points and len(run.targets) >= self.policy.several_targets:
                alarms.append(self._alarm((DOMINANCE_MANY, source, ""), window))
        for source, target in kept_off:
            for key in ((DOMINANCE_ONE, source, target), (DOMINANCE_MANY, source, "")):
                held = self.runs.get(key)
                if held is not None and held.last < window:
                    self._decay(key, held, window)
                    held.last = window
        self._tidy(window)
        return _one_per_source(alarms)

    def refused(self, window: int, found: Sequence[Refusals]) -> list[Alarm]:
        """One window of what had to be refused."""
        alarms = []
        for row in sorted(found, key=lambda row: (row.source, row.kind)):
            key = (row.kind, row.source, "")
            run = self._run(key, window)
            run.points = min(run.points + row.excess, 1 << 53)
            run.last = window
            run.windows += 1
            run.bad += row.bad
            run.sent += row.sent
            run.add_targets(row.targets)
            if run.points >= self.policy.burst_alarm(row.kind):
                alarms.append(self._alarm(key, window))
        self._tidy(window)
        return alarms

    def copy(self) -> Judge:
        """A judge that may look ahead."""
        return Judge.loaded(self.policy, self.dumped())

    def dumped(self) -> list[Any]:
        """The state as JSON has it."""
        return [[*key, asdict(run)] for key, run in sorted(self.runs.items())]

    @classmethod
    def loaded(cls, policy: DetectionPolicy, state: Sequence[Sequence[Any]]) -> Judge:
        """From `dumped`."""
        runs = {}
        for kind, source, target, run in state:
            values = dict(run)
            values["targets"] = list(values["targets"])
            values["victims"] = dict(values["victims"])
            values["course"] = [tuple(point) for point in values["course"]]
            runs[str(kind), str(source), str(target)] = Run(**values)
        return cls(policy, runs)

    def near(self, window: int) -> list[Alarm]:
        """The sources that have half of an alarm's points, and got some within the last two windows."""
        found = []
        for (kind, source, _), run in sorted(self.runs.items()):
            lone = kind == DOMINANCE_MANY and len(run.targets) < self.policy.several_targets
            if not lone and run.points * 2 >= self._alarm_points(kind) and run.last >= window - self._step:
                found.append(Alarm(kind, source, run.last, run))
        return found

    def ledger(self, window: int) -> list[dict[str, Any]]:
        """The sources under suspicion, how near the alarm each is, and when it would ring if things went on."""
        told = []
        for (kind, source, target), run in self.runs.items():
            if kind == DOMINANCE_MANY and len(run.targets) < self.policy.several_targets:
                continue  # That is one target so far, and told as such.
            alarm = self._alarm_points(kind)
            points = max(0, run.points - self._loss(kind) * self._missed(run, window + self._step))
            each = self.policy.hit_points if kind.startswith("dominance-") else _rate(run)
            if points:
                windows = -(-max(0, alarm - points) // max(1, each))
                told.append(
                    {
                        "kind": kind,
                        "source": source,
                        "target": target or None,
                        "points": points,
                        "alarm_points": alarm,
                        "since": _moment(run.since),
                        "share": round(run.taken / run.volume, 4) if run.volume else None,
                        "permits_used": run.taken,
                        "others_refused": run.rivals_hurt,
                        "refused": run.bad,
                        "seconds_to_ban": windows * self._step,
                        "near": points * 2 >= alarm,
                    }
                )
        return sorted(
            told, key=lambda one: (-one["points"] / one["alarm_points"], one["source"], one["kind"])
        )

    # -- points ----------------------------------------------------------------------------------------

    @property
    def _step(self) -> int:
        return self.policy.window_seconds

    def _several_milli(self, row: Crowding) -> int:
        """A route that allows one source more than the policy does allows it of several, too."""
        several = round(self.policy.several_targets_share * MILLI)
        own = row.least_milli - round(self.policy.single_target_share * MILLI)
        return several + max(0, own)

    def _hit(self, key: Key, window: int, rows: Sequence[Crowding]) -> Run:
        run = self._run(key, window)
        # Beyond the alarm nothing is gained: who waits for a second target must not carry points for hours.
        run.points = min(run.points + self.policy.hit_points, self.policy.alarm_points)
        run.last = window
        run.windows += 1
        for row in rows:
            run.taken += row.taken
            run.volume += row.volume
            run.rivals_offered += row.rivals_offered
            run.rivals_hurt += row.rivals_hurt
            run.rivals_waited += row.rivals_waited
            run.hurt(row.victims)
        run.add_targets(row.target for row in rows)
        worst = max(rows, key=lambda row: row.share_milli)
        harm = worst.rivals_hurt * 100 // worst.rivals_offered if worst.rivals_offered else 0
        run.course = [*run.course[-COURSE + 1 :], (window, worst.share_milli // 10, min(harm, 100))]
        return run

    def _run(self, key: Key, window: int) -> Run:
        """The run of a key as it is now; a new one where nothing is left of the old."""
        run = self.runs.get(key)
        if run is not None:
            self._decay(key, run, window)
            if run.points > 0:
                return run
        self.runs[key] = fresh = Run(since=window)
        return fresh

    def _decay(self, key: Key, run: Run, window: int) -> None:
        run.points = max(0, run.points - self._loss(key[0]) * self._missed(run, window))

    def _missed(self, run: Run, window: int) -> int:
        return max(0, (window - run.last) // self._step - 1)

    def _loss(self, kind: str) -> int:
        if kind.startswith("dominance-"):
            return self.policy.miss_points
        return self.policy.burst_allowance(kind)

    def _alarm_points(self, kind: str) -> int:
        return self.policy.alarm_points if kind.startswith("dominance-") else self.policy.burst_alarm(kind)

    def _alarm(self, key: Key, window: int) -> Alarm:
        """Abuse that comes after it is another, for another ban."""
        return Alarm(key[0], key[1], window, self.runs.pop(key))

    def _tidy(self, window: int) -> None:
        for key, run in list(self.runs.items()):
            if run.points <= self._loss(key[0]) * self._missed(run, window):
                del self.runs[key]
        if len(self.runs) > MOST_RUNS:
            least = sorted(self.runs, key=lambda key: self.runs[key].points / self._alarm_points(key[0]))
            for key in least[: len(self.runs) - MOST_RUNS]:
                del self.runs[key]


def _one_per_source(alarms: Sequence[Alarm]) -> list[Alarm]:
    """Alarms of one kind and source at one moment as one: a proposal's id does not tell targets apart."""
    kept: dict[tuple[str, str], Alarm] = {}
    for alarm in alarms:
        first = kept.setdefault((alarm.kind, alarm.source), alarm)
        if first is not alarm:
            one, other = first.run, alarm.run
            one.since = min(one.since, other.since)
            for name in ("windows", "taken", "volume", "rivals_offered", "rivals_hurt", "rivals_waited"):
                setattr(one, name, getattr(one, name) + getattr(other, name))
            one.add_targets(other.targets)
            one.hurt(other.victims.items())
    return list(kept.values())


def together(alarms: Iterable[Alarm], policy: DetectionPolicy) -> list[dict[str, Any]]:
    """One proposal per id: who is found twice in a period is proposed once, for all of its targets."""
    made: dict[str, dict[str, Any]] = {}
    for alarm in alarms:
        one = alarm.proposal(policy)
        first = made.setdefault(one["proposal_id"], one)
        if first is not one:
            first["affected_targets"] = sorted({*first["affected_targets"], *one["affected_targets"]})
            first["total_violations"] += one["total_violations"]
            for name in ("window_end", "ban_applied_until"):
                first[name] = max(first[name], one[name])
    return [made[name] for name in sorted(made)]


def judged(
    policy: DetectionPolicy,
    crowding: Iterable[Crowding],
    kept_off: Iterable[tuple[int, str, str]],
    refusals: Iterable[Refusals],
) -> list[Alarm]:
    """All windows from first to last, by a judge that knows nothing before."""
    return fold(Judge(policy), by_window(crowding, kept_off, refusals))


@dataclass(slots=True)
class WindowRows:
    """The rows of one window."""

    crowding: list[Crowding] = field(default_factory=list)
    kept_off: set[tuple[str, str]] = field(default_factory=set)
    refusals: list[Refusals] = field(default_factory=list)


def by_window(
    crowding: Iterable[Crowding],
    kept_off: Iterable[tuple[int, str, str]],
    refusals: Iterable[Refusals],
) -> dict[int, WindowRows]:
    """The same rows by their window."""
    windows: dict[int, WindowRows] = {}
    for row in crowding:
        windows.setdefault(row.window, WindowRows()).crowding.append(row)
    for window, source, target in kept_off:
        windows.setdefault(window, WindowRows()).kept_off.add((source, target))
    for refused in refusals:
        windows.setdefault(refused.window, WindowRows()).refusals.append(refused)
    return windows


def fold(
    judge: Judge, windows: Mapping[int, WindowRows], *, settled_before: int | None = None
) -> list[Alarm]:
    """Judge these windows in order; shares only of those that begin before `settled_before`.

    What had to be refused is judged at once: late events only add to it.
    """
    alarms: list[Alarm] = []
    for window in sorted(windows):
        rows = windows[window]
        if settled_before is None or window < settled_before:
            alarms += judge.crowded(window, rows.crowding, sorted(rows.kept_off))
        alarms += judge.refused(window, rows.refusals)
    return alarms


def _rate(run: Run) -> int:
    return max(1, run.points // max(1, run.windows))


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
