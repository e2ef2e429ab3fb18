"""Times and durations as they are typed, the same for every command.

Never guesses a time zone: a time without one is UTC, as everything in the log is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from snavio.errors import BadRequest

_SPAN: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)?")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
# On the wire, 0 means "now": a time that is too long ago must not become that.
_FIRST_NS: Final = 1

TIME_HELP: Final = "`now`, how long ago (90s, 15m, 2h, 7d), or a time such as 2026-01-31T12:00:00Z."
Since = Annotated[
    str, typer.Option("--since", "--from", metavar="<time>", help=f"From this time on: {TIME_HELP}")
]
Until = Annotated[str, typer.Option("--until", "--to", metavar="<time>", help="Before this time.")]


@dataclass(frozen=True, slots=True)
class Period:
    """The options `--since` and `--until`; empty is open."""

    since: Since = ""
    until: Until = ""

    def read(self, *, now_unix_ns: int) -> tuple[int | None, int | None]:
        """Begin and end in nanoseconds since the epoch, None where open; BadRequest when the end is not later."""
        begin = read_time(self.since, now_unix_ns=now_unix_ns, option="--since") if self.since else None
        end = read_time(self.until, now_unix_ns=now_unix_ns, option="--until") if self.until else None
        if begin is not None and end is not None and begin >= end:
            raise BadRequest(f"--until {self.until} is not after --since {self.since}.", reason="bad-time")
        return begin, end

    def read_past(self, *, now_unix_ns: int) -> tuple[int | None, int | None]:
        """As `read`; a time to come is refused, and an end that is `now` is open."""
        for words, option in ((self.since, "--since"), (self.until, "--until")):
            if words:
                read_past(words, now_unix_ns=now_unix_ns, option=option)
        until = "" if self.until == "now" else self.until
        return Period(self.since, until).read(now_unix_ns=now_unix_ns)


def read_time(words: str, *, now_unix_ns: int, option: str) -> int:
    """Nanoseconds since the epoch of `now`, `2h`, `2h ago` or `-2h`, or an RFC 3339 time."""
    if words == "now":
        return now_unix_ns
    ago = words.removesuffix(" ago").removeprefix("-")
    span = _SPAN.fullmatch(ago)
    if span is not None and span[2]:
        return max(_FIRST_NS, now_unix_ns - round(float(span[1]) * _SECONDS[span[2]] * 1000) * 1_000_000)
    try:
        at = datetime.fromisoformat(words)
    except ValueError:
        raise BadRequest(f"{option}: must be {TIME_HELP}", reason="bad-time") from None
    # In another zone a time may lie outside all that a calendar holds. Nothing happened there: the first or the last.
    whole = ((at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    return max(_FIRST_NS, min(whole, _LAST_US) * 1000)


def read_end(words: str, *, now_unix_ns: int, option: str) -> int:
    """The end of something that begins now: a duration such as `2h`, or a time to come."""
    span = _SPAN.fullmatch(words)
    if span is not None and span[2]:
        return now_unix_ns + round(read_span(words, option=option) * 1e9)
    try:
        end_ns = read_time(words, now_unix_ns=now_unix_ns, option=option)
    except BadRequest:
        end_ns = 0
    if end_ns <= now_unix_ns:
        raise BadRequest(
            f"{option}: must be a duration such as 2h, or a time to come such as 2031-01-31T12:00:00Z.",
            reason="bad-time",
        )
    return end_ns


def read_past(words: str, *, now_unix_ns: int, option: str) -> int:
    """As `read_time`; a time to come is refused, since the log does not know it."""
    at_ns = read_time(words, now_unix_ns=now_unix_ns, option=option)
    if at_ns > now_unix_ns:
        raise BadRequest(
            f"{option}: {words} is still to come, and the log knows the past.", reason="bad-time"
        )
    return at_ns


def read_span(words: str, *, option: str, least_s: float = 0.001) -> float:
    """Seconds of `500ms`, `90s`, `15m`, `2h` or `7d`; of a bare number, seconds."""
    span = _SPAN.fullmatch(words)
    seconds = float(span[1]) * _SECONDS[span[2] or "s"] if span is not None else -1.0
    if span is None or seconds < least_s:
        least = f", at least {least_s:g} s" if span is not None and least_s > 0.001 else ""
        raise BadRequest(
            f"{option}: must be a duration such as 90s, 15m, 2h or 7d{least}.", reason="bad-time"
        )
    return seconds
