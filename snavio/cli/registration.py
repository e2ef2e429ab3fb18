"""Reads a registration file: what a tenant wants the directory to say about its services and targets.

Never half-understands one: every mistake is named with its line, and what was probably meant.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from snavio.cli.registration_keys import TABLES, TOP, WORDS
from snavio.config.mistakes import closest
from snavio.config.toml_lines import Spot, spots
from snavio.domain.directory import (
    AclEntry,
    AlertChannel,
    ChannelKind,
    DedupeMode,
    DispatchMode,
    Fairness,
    Limit,
    Principal,
    Profile,
    ProfileLimit,
    QueueKind,
    Route,
    Service,
    SourceQuota,
    Target,
    Tenant,
    TopicRule,
    Value,
    WhenFull,
)
from snavio.domain.directory.topic_rule import BOUNDS
from snavio.errors import BadRequest, Conflict, SnavioError

MAX_BYTES: Final = 4 << 20
T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class Registration:
    """The entries that a file asks for, each after those that it needs."""

    tenant: str
    values: tuple[Value, ...]
    path: Path
    lines: tuple[int, ...]
    """Of each value, where it stands in the file."""

    def refused(self, mistakes: Sequence[tuple[int, str]], *, more: int = 0, written: int = 0) -> Conflict:
        """The error about values that the mesh refuses, by number, with the line of each, when so many are written."""
        told = [(self.lines[number], words) for number, words in mistakes]
        message = _mistaken(self.path, told, more=more, outcome="" if written else "; nothing was registered")
        return Conflict(message, reason="refused-registration")

    @property
    def triples(self) -> list[tuple[str, str, str]]:
        """Every source, target and command of the file's rights."""
        rights = (value for value in self.values if isinstance(value, AclEntry))
        return sorted({(right.source, right.target, right.name) for right in rights})


def read_registration(path: Path) -> Registration:
    """The registration in a file; BadRequest with every mistake in it."""
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8") if len(raw) <= MAX_BYTES else ""
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}.", reason="bad-registration") from None
    except UnicodeDecodeError:
        raise BadRequest(f"{path} is not UTF-8 text.", reason="bad-registration") from None
    if len(raw) > MAX_BYTES:
        raise BadRequest(f"{path} is larger than {MAX_BYTES} bytes.", reason="bad-registration")
    return parse_registration(text, path)


def parse_registration(text: str, path: Path) -> Registration:
    """The registration of a text; `path` is where mistakes are said to be."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadRequest(f"{path}: not TOML: {error}.", reason="bad-registration") from None
    return _Reading(path, _Lines(spots(text)), document).registration()


def _mistaken(
    path: Path,
    mistakes: Sequence[tuple[int, str]],
    *,
    more: int = 0,
    outcome: str = "; nothing was registered",
) -> str:
    told = [f"{path}:{line}: {words}" for line, words in sorted(mistakes)]
    several = f"{path} has {len(told) + more:,} mistakes{outcome}:"
    rest = [f"and {more:,} more."] if more else []
    return told[0] if len(told) == 1 and not more else "\n  ".join([several, *told, *rest])


class _Lines:
    """Where the keys of the n-th table of a list stand."""

    def __init__(self, found: list[Spot]) -> None:
        self._lines: dict[tuple[str, int, str], int] = {}
        numbers: dict[str, int] = {}
        for spot in found:
            table = spot.path[0]
            if spot.header and len(spot.path) == 1:
                numbers[table] = numbers.get(table, -1) + 1
            inner = ".".join(spot.path[1:])
            self._lines.setdefault((table, numbers.get(table, 0), inner), spot.line)

    def of(self, table: str, number: int, key: str) -> int:
        """The line of a key, or of its table."""
        return self._lines.get((table, number, key)) or self._lines.get((table, number, ""), 0)


@dataclass
class _Reading:
    path: Path
    lines: _Lines
    document: Mapping[str, Any]
    mistakes: list[tuple[int, str]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    tenant: str = ""

    def registration(self) -> Registration:
        self._unknown(self.document, TOP, "", 0, "")
        tenant = self.document.get("tenant")
        if not isinstance(tenant, str):
            self._mistake("tenant", 0, "", "tenant: must be given, as text.")
        self.tenant = tenant if isinstance(tenant, str) else ""
        values = tuple(self._values())
        if self.mistakes:
            raise BadRequest(_mistaken(self.path, self.mistakes), reason="bad-registration")
        return Registration(self.tenant, values, self.path, tuple(self.places))

    def _values(self) -> Iterator[Value]:
        if self.tenant:
            yield from self._built("tenant", 0, lambda: Tenant(self.tenant))
        names = self._typed({"principals": self.document.get("principals", [])}, "principals", 0, top=True)
        for name in names.get("principals", ()):
            yield from self._built("principals", 0, partial(Principal, self.tenant, name))
        builders: tuple[tuple[str, Callable[[Mapping[str, Any]], Value]], ...] = (
            ("service", self._service),
            ("target", lambda row: Target(row["name"], self.tenant)),
            ("limit", self._profile_limit),
            ("route", self._route),
            ("acl", self._acl),
            ("quota", self._quota),
            ("alert", self._alert),
            ("topic", self._topic),
        )
        for table, build in builders:
            for number, row in self._rows(table):
                yield from self._built(table, number, partial(build, row))

    def _rows(self, table: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        rows = self.document.get(table, [])
        if isinstance(rows, dict):
            rows = [rows]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            self._mistake(table, 0, "", f"{table}: must be tables, each under [[{table}]].")
            return
        for number, row in enumerate(rows):
            self._unknown(row, TABLES[table], table, number, "")
            good = self._typed(row, table, number)
            for needed in (key for key, (_, required) in TABLES[table].items() if required):
                if needed not in row:
                    self._mistake(table, number, "", f"{table}: the key {needed!r} is missing.")
            # A mistake in one key must not hide those in the others.
            if all(needed in good for needed, (_, required) in TABLES[table].items() if required):
                yield number, good

    def _typed(
        self,
        row: Mapping[str, Any],
        table: str,
        number: int,
        *,
        inner: str = "",
        top: bool = False,
        quiet: bool = False,
    ) -> dict[str, Any]:
        keys = TOP if top else TABLES[f"{table}.{inner}" if inner else table]
        good: dict[str, Any] = {}
        for key, item in row.items():
            if key not in keys:
                continue
            kind = keys[key][0]
            spelled = f"{inner}.{key}" if inner else key
            if kind is dict and isinstance(item, dict):
                if not quiet:
                    self._unknown(item, TABLES[f"{table}.{key}"], table, number, f"{key}.")
                good[key] = self._typed(item, table, number, inner=key, quiet=quiet)
            elif _is(item, kind):
                good[key] = item
            elif not quiet:
                where = key if top else f"{table}.{spelled}"
                self._mistake(table, number, "" if top else spelled, f"{where}: must be {WORDS[kind]}.")
        return good

    def _service(self, row: Mapping[str, Any]) -> Service:
        return Service(self.tenant, row["name"], tuple(row.get("principals", ())))

    def _route(self, row: Mapping[str, Any]) -> Route:
        plain = {key: row[key] for key in ("dlq", "expected_drain_seconds", "ttl_seconds") if key in row}
        limit = row.get("limit")
        if limit is not None and not {"max", "interval_seconds"} <= limit.keys():
            raise BadRequest("route.limit: must have max and interval_seconds.", reason="bad-field")
        return Route(
            target=row["target"],
            name=row["command"],
            queue_kind=_choice(QueueKind, row.get("queue", "mailbox"), "route.queue"),
            profile=_choice(Profile, row.get("profile", "low"), "route.profile"),
            dedupe_mode=_choice(DedupeMode, row.get("dedupe_mode", "none"), "route.dedupe_mode"),
            dispatch_mode=_choice(DispatchMode, row.get("dispatch_mode", "adaptive"), "route.dispatch_mode"),
            limit=Limit(**limit) if limit is not None else None,
            fairness=Fairness(**row.get("fairness", {})),
            **plain,
        )

    def _profile_limit(self, row: Mapping[str, Any]) -> ProfileLimit:
        limit = {key: row[key] for key in row if key not in ("target", "profile")}
        return ProfileLimit(row["target"], _choice(Profile, row["profile"], "limit.profile"), Limit(**limit))

    def _acl(self, row: Mapping[str, Any]) -> AclEntry:
        profile = _choice(Profile, row["profile"], "acl.profile") if "profile" in row else None
        return AclEntry(self._source(row), row["target"], row["command"], profile, row.get("ttl_seconds", 0))

    def _quota(self, row: Mapping[str, Any]) -> SourceQuota:
        source = self._source(row)
        more = {key: row[key] for key in ("always", "burst", "cooldown_seconds", "shadow") if key in row}
        return SourceQuota(source, row["target"], row["command"], row["max"], row["interval_seconds"], **more)

    def _alert(self, row: Mapping[str, Any]) -> AlertChannel:
        channel = _choice(ChannelKind, row["kind"], "alert.kind")
        events = tuple(row.get("events", ()))
        return AlertChannel(self.tenant, row["name"], channel, row.get("address", ""), events)

    def _topic(self, row: Mapping[str, Any]) -> TopicRule:
        numbers = {rule: row[rule] for rule in BOUNDS if rule in row}
        when_full = _choice(WhenFull, row["when_full"], "topic.when_full") if "when_full" in row else None
        name = row["name"]
        topic = name if name.startswith(f"{self.tenant}/") else f"{self.tenant}/{name}"
        return TopicRule(self.tenant, topic, when_full=when_full, **numbers)

    def _source(self, row: Mapping[str, Any]) -> str:
        """A service of this tenant may be named without the tenant."""
        source: str = row["source"]
        return source if "/" in source else f"{self.tenant}/{source}"

    def _built(self, table: str, number: int, build: Callable[[], Value]) -> Iterator[Value]:
        try:
            built = build()
            self.places.append(self.lines.of(table, number, ""))
            yield built
        except SnavioError as error:
            for words in self._all(table, number, str(error)):
                self._refused(table, number, words)

    def _all(self, table: str, number: int, first: str) -> list[str]:
        """The refusals of an entry. A route is refused for one key at a time: that one is taken out, and what is left
        is tried again.
        """
        told = [first]
        if table != "route":
            return told
        rows = self.document["route"]
        left = self._typed(rows[number] if isinstance(rows, list) else rows, table, number, quiet=True)
        while (key := _key(table, told[-1]).partition(".")[0]) in left:
            left = {**left, key: "x"} if key in ("target", "command") else _without(left, key)
            try:
                self._route(left)
            except SnavioError as error:
                told.append(str(error))
            else:
                break
        return told

    def _refused(self, table: str, number: int, words: str) -> None:
        """Note a refusal of the directory's rules at the key that it names."""
        self._mistake(table, number, _key(table, words), words)

    def _unknown(
        self, row: Mapping[str, Any], known: Mapping[str, Any], table: str, number: int, prefix: str
    ) -> None:
        for key in row:
            if key in known:
                continue
            meant = closest(key, known)
            hint = f"did you mean {meant!r}?" if meant else f"known are {', '.join(known)}."
            where = f" in [[{table}]]" if table else ""
            spot = (key, 0, "") if not table else (table, number, prefix + key)
            self._mistake(*spot, f"unknown key {(prefix + key)!r}{where}: {hint}")

    def _mistake(self, table: str, number: int, key: str, words: str) -> None:
        self.mistakes.append((self.lines.of(table, number, key) or 1, words))


def _key(table: str, words: str) -> str:
    """The file's key for the field that a refusal names first."""
    named = words.partition(":")[0].partition(".")[2]
    if table in ("route", "acl", "quota"):
        named = {"name": "command", "queue_kind": "queue"}.get(named, named)
    elif named == table:
        named = "name"
    return "principals" if named == "principal" else named


def _without(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in row.items() if name != key}


def _is(item: Any, kind: type[Any]) -> bool:
    if kind is list:
        return isinstance(item, list) and all(isinstance(one, str) for one in item)
    if kind is float:
        return isinstance(item, int | float) and not isinstance(item, bool)
    return isinstance(item, kind) and (kind is bool or not isinstance(item, bool))


def _choice(choices: type[E], word: str, where: str) -> E:
    known = {choice.name.lower().replace("_", "-"): choice for choice in choices}
    if word not in known:
        meant = closest(word, known)
        hint = f"; did you mean {meant!r}?" if meant else "."
        raise BadRequest(f"{where}: must be one of {', '.join(known)}{hint}", reason="bad-field")
    return known[word]
