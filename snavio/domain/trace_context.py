"""W3C trace contexts, and the spans that a sampled command has at each station of the mesh.

A command is forwarded untouched, so no station can write its own span into it. The span of each station therefore
follows from the command: whoever comes next knows its parent without being told. Never takes part in a decision: a
trace context is not signed.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final

PER_SECOND: Final = 20
"""Sampled commands of one process in a second; a span costs some 70 µs."""
SECOND_NS: Final = 1_000_000_000
_FORM: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SHARE_BITS: Final = 56


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One `traceparent`: the trace, and the span that the next one is a child of."""

    trace_id: str
    span_id: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        """As it is sent."""
        return f"00-{self.trace_id}-{self.span_id}-0{int(self.sampled)}"


def parse_traceparent(text: str) -> TraceContext | None:
    """The context; None for a text that is none."""
    matched = _FORM.fullmatch(text)
    if matched is None or not int(matched[1], 16) or not int(matched[2], 16):
        return None
    return TraceContext(matched[1], matched[2], bool(int(matched[3], 16) & 1))


def begin_trace(command_id: str) -> TraceContext:
    """A sampled trace that begins with this command, whose producer exports no span of its own.

    Shield knows it by its span's id, and tells the producer's span in its place.
    """
    trace_id = secrets.token_hex(16)
    return TraceContext(trace_id, span_at("producer", trace_id, command_id, ""), True)


def span_at(station: str, trace_id: str, command_id: str, timestamp: str) -> str:
    """The span of one attempt to send a command at a station. Each attempt has another signed timestamp."""
    text = "\n".join((station, trace_id, command_id, timestamp))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class TraceBudget:
    """At most so many sampled commands in a second, of all that come, the same ones at every station.

    Chosen by trace id, so that stations which see the same traffic keep the same traces.
    """

    def __init__(self, *, per_second: int = PER_SECOND) -> None:
        self._per_second = per_second
        self._second = -1
        self._seen = self._kept = 0
        self._share = 1.0
        self.left_out = 0
        """Sampled commands that were not told."""

    def take(self, trace_id: str, *, mono_ns: int) -> bool:
        """True if this one is to be told."""
        second = mono_ns // SECOND_NS
        if second != self._second:
            seen = self._seen if second == self._second + 1 else 0
            self._share = 1.0 if seen <= self._per_second else self._per_second / seen
            self._second, self._seen, self._kept = second, 0, 0
        self._seen += 1
        if self._kept >= self._per_second or _spread(trace_id) >= self._share:
            self.left_out += 1
            return False
        self._kept += 1
        return True


def _spread(trace_id: str) -> float:
    """From 0 to 1, by the part of the id that has to be random."""
    return int(trace_id[-_SHARE_BITS // 4 :], 16) / (1 << _SHARE_BITS)
