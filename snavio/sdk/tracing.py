"""Traces of a program that sends and receives: its own spans where it uses OpenTelemetry, and ids where it does not.

Never imports OpenTelemetry: a program that traces has done so already. Never begins more than a few traces a second.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

from snavio.domain.trace_context import PER_SECOND, SECOND_NS, TraceContext, begin_trace

_API: Final = "opentelemetry.trace"
_UNTRACED: Final = ("", None)


@dataclass(slots=True)
class SendTraces:
    """The traces that a producer begins: so many in a second, for commands that come without one."""

    per_second: int = PER_SECOND
    _second: int = -1
    _begun: int = 0

    def begin(self, command_id: str, target: str, *, mono_ns: int) -> tuple[str, Any]:
        """`traceparent` of a command, empty for none, and the span to `end`."""
        api = sys.modules.get(_API)
        above = None if api is None else api.get_current_span().get_span_context()
        if not self._due(mono_ns):
            if above is None or not above.is_valid:
                return _UNTRACED
            # The caller's own trace goes on in any case; only a span of the sending is spared.
            return _traceparent(above), None
        if api is not None:
            span = api.get_tracer("snavio").start_span(
                f"send {target}",
                kind=api.SpanKind.PRODUCER,
                attributes={"snavio.command_id": command_id, "snavio.target": target},
            )
            if span.get_span_context().is_valid:
                return _traceparent(span.get_span_context()), span
        return begin_trace(command_id).traceparent, None

    def _due(self, mono_ns: int) -> bool:
        second = mono_ns // SECOND_NS
        if second != self._second:
            self._second, self._begun = second, 0
        if self._begun >= self.per_second:
            return False
        self._begun += 1
        return True


@dataclass(slots=True)
class ReceiveTraces:
    """The spans of a consumer: from handing a command out to its settlement."""

    per_second: int = PER_SECOND
    _second: int = -1
    _begun: int = 0

    def begin(
        self, context: TraceContext, *, topic: str, command_id: str, above: str, attempt: int, mono_ns: int
    ) -> Any:
        """A span for a command of a sampled trace, below the span `above`; None for none."""
        api = sys.modules.get(_API)
        if api is None or not context.sampled:
            return None
        second = mono_ns // SECOND_NS
        if second != self._second:
            self._second, self._begun = second, 0
        if self._begun >= self.per_second:
            return None
        self._begun += 1
        parent = api.SpanContext(
            int(context.trace_id, 16), int(above, 16), is_remote=True, trace_flags=api.TraceFlags(1)
        )
        return api.get_tracer("snavio").start_span(
            f"consume {topic}",
            context=api.set_span_in_context(api.NonRecordingSpan(parent)),
            kind=api.SpanKind.CONSUMER,
            attributes={
                "snavio.command_id": command_id,
                "snavio.corr_id": command_id,
                "snavio.attempt": attempt,
            },
        )


def program_traces() -> bool:
    """True if the program has loaded OpenTelemetry."""
    return _API in sys.modules


def _traceparent(context: Any) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
