"""Times as people type them.

Never guesses a time zone: a time without one is UTC, as everything in the log is.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from snavio.errors import BadRequest

_AGO = re.compile(r"([0-9]{1,9})(s|m|h|d)")
# On the wire, 0 means "now": a time that is too long ago must not become that.
_FIRST_NS = 1
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def read_moment(words: str, *, now_unix_ns: int, option: str) -> int:
    """Nanoseconds since the epoch of `now`, `90s`/`15m`/`2h`/`7d` (ago), or an ISO 8601 time."""
    if words == "now":
        return now_unix_ns
    ago = _AGO.fullmatch(words)
    if ago is not None:
        return max(_FIRST_NS, now_unix_ns - int(ago[1]) * _SECONDS[ago[2]] * 1_000_000_000)
    try:
        at = datetime.fromisoformat(words)
        seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        seconds = -1.0
    if seconds < 0:
        raise BadRequest(
            f"{option}: must be `now`, how long ago (90s, 15m, 2h, 7d) or a time such as 2026-01-31T12:00:00Z.",
            reason="bad-time",
        )
    return max(_FIRST_NS, round(seconds * 1e9))


def read_past(words: str, *, now_unix_ns: int, option: str) -> int:
    """As `read_moment`; a time to come is refused, since the log does not know it."""
    at_ns = read_moment(words, now_unix_ns=now_unix_ns, option=option)
    if at_ns > now_unix_ns:
        raise BadRequest(
            f"{option}: {words} is still to come, and the log knows the past.", reason="bad-time"
        )
    return at_ns


def read_span(words: str, *, option: str) -> int:
    """Seconds of `90s`, `15m`, `2h` or `7d`."""
    span = _AGO.fullmatch(words)
    if span is None or not int(span[1]):
        raise BadRequest(f"{option}: must be a time such as 90s, 15m, 2h or 7d.", reason="bad-time")
    return int(span[1]) * _SECONDS[span[2]]
