"""Spans of sampled commands at one station, exported by OpenTelemetry in the background.

Never costs a command anything when no exporter is configured, never more than a few commands a second when one is, and
never waits for a collector: spans that find no room are counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from snavio.clock import Clock
from snavio.domain.trace_context import TraceBudget, TraceContext, parse_traceparent, span_at
from snavio.domain.verdict import Verdict
from snavio.errors import Unavailable
from snavio.host.introspection import Introspection, program_version
from snavio.host.periodic import Periodic
from snavio.native import SampledCommand
from snavio.observe.otlp_exporters import find_exporter, resource_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MOST_WAITING: Final = 2048
EXPORT_SECONDS: Final = 1.0
STOP_MS: Final = 2000
AT_ONCE: Final = 512
MOST_RECENT: Final = 4096
"""Sampled commands whose trace `explain` can name."""
PRODUCER: Final = "producer"


@dataclass(frozen=True, slots=True)
class _Passing:
    """One batch at one station."""

    times: tuple[int, int]
    codes: bytes
    parent: str
    source: str


class Tracer:
    """`station` is this process's; see `snavio.domain.trace_context` for how spans find their parents.

    Without an exporter it only remembers, for `explain`, which trace a command belongs to.
    """

    def __init__(
        self, station: str, introspection: Introspection, *, exporter: Any, clock: Clock, budget: TraceBudget
    ) -> None:
        self._station = station
        self._exporter = exporter
        self._clock = clock
        self._budget = budget
        self._resource = None if exporter is None else resource_of(introspection)
        self._recent: dict[str, str] = {}
        self._instance = introspection.instance
        self._waiting: deque[ReadableSpan] = deque()
        self._told = self._dropped = 0
        self._batches = 0
        self._log = structlog.get_logger()
        self._exports = Periodic(
            "trace export", self.export, every_s=EXPORT_SECONDS, longest_s=10 * EXPORT_SECONDS
        )
        introspection.counts(self.counters, prefix="traces.")

    def counters(self) -> dict[str, int]:
        """Spans by what became of them, and sampled commands beyond the bound of a second."""
        return {
            "exported": self._told,
            "dropped": self._dropped,
            "left_out": self._budget.left_out,
        }

    def start(self) -> None:
        """Export from now on, if there is an exporter."""
        if self._exporter is not None:
            self._exports.start()

    async def stop(self) -> None:
        """Export what is left, if the collector answers, and end."""
        if self._exporter is None:
            return
        await self._exports.stop()
        try:
            async with asyncio.timeout(STOP_MS / 1000):
                await self.export()
        except (TimeoutError, Unavailable):
            pass
        await asyncio.to_thread(self._exporter.shutdown)

    def batch(
        self,
        sampled: Sequence[SampledCommand],
        *,
        began_mono_ns: int,
        codes: bytes,
        parent: str,
        source: str = "",
    ) -> None:
        """Tell a batch whose last answer has gone out: a span for each sampled command, each linked with the span of
        the batch that they came in. `parent` is the station before this one.
        """
        if not sampled:
            return
        now = self._clock.mono_ns()
        chosen = []
        for each in sampled:
            context = parse_traceparent(each.traceparent)
            if context is None:
                continue
            self._remember(each.id, context.trace_id)
            if self._exporter is not None and self._budget.take(context.trace_id, mono_ns=now):
                chosen.append((each, context))
        if chosen:
            ended = self._clock.unix_ns()
            passing = _Passing((ended - max(0, now - began_mono_ns), ended), codes, parent, source)
            try:
                self._tell(chosen, passing)
            except Exception as error:
                # A trace is for people; the batch has its answer already.
                self._log.warning("spans could not be made", error=repr(error))

    def trace_of(self, command_id: str) -> str:
        """The trace of a sampled command that came by lately; empty if that is not known."""
        return self._recent.get(command_id, "")

    def _remember(self, command_id: str, trace_id: str) -> None:
        if len(self._recent) >= MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[command_id] = trace_id

    def _tell(self, chosen: Sequence[tuple[SampledCommand, TraceContext]], passing: _Passing) -> None:
        times, codes = passing.times, passing.codes
        self._batches += 1
        batch = TraceContext(*self._batch_ids(times[0]), True)
        links = []
        for command, context in chosen:
            code = codes[command.index] if command.index < len(codes) else 0
            span = self._child(self._station, command, context)
            links.append(span)
            attributes = {
                "snavio.command_id": command.id,
                "snavio.corr_id": command.id,
                "snavio.target": command.target,
                "snavio.command": command.name,
                "snavio.verdict": _reason(code),
            }
            if passing.source:
                attributes["snavio.source"] = passing.source
            above = context
            if passing.parent != PRODUCER:
                above = self._child(passing.parent, command, context)
            elif context.span_id == span_at(PRODUCER, context.trace_id, command.id, ""):
                # Nobody else tells the span of a producer without OpenTelemetry.
                self._put(
                    f"send {command.target}", context, kind="PRODUCER", times=times, attributes=attributes
                )
            kind = "CONSUMER" if self._station == "mailbox" else "SERVER"
            self._put(
                f"{self._station} {command.target}",
                span,
                parent=above,
                kind=kind,
                times=times,
                attributes=attributes,
                links=(batch,),
                failed=_reason(code) if code >= Verdict.MALFORMED else "",
            )
            self._log.info(
                "traced",
                station=self._station,
                trace_id=context.trace_id,
                span_id=span.span_id,
                corr_id=command.id,
                verdict=_reason(code),
            )
        self._put(
            f"{self._station} batch",
            batch,
            kind="INTERNAL",
            times=times,
            attributes={"snavio.commands": len(codes), "snavio.sampled": len(chosen)},
            links=links,
        )

    def _child(self, station: str, command: SampledCommand, context: TraceContext) -> TraceContext:
        span_id = span_at(station, context.trace_id, command.id, command.timestamp)
        return TraceContext(context.trace_id, span_id, True)

    def _batch_ids(self, began_unix_ns: int) -> tuple[str, str]:
        named = f"{self._instance} {self._batches} {began_unix_ns}"
        halves = [span_at(half, named, self._station, "") for half in ("a", "b", "batch")]
        return halves[0] + halves[1], halves[2]

    def _put(
        self,
        name: str,
        context: TraceContext,
        *,
        parent: TraceContext | None = None,
        kind: str,
        times: tuple[int, int],
        attributes: Mapping[str, str | int],
        links: Iterable[TraceContext] = (),
        failed: str = "",
    ) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Link, SpanKind
        from opentelemetry.trace.status import Status, StatusCode

        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._waiting.append(
            ReadableSpan(
                name,
                context=_span_context(context),
                parent=None if parent is None else _span_context(parent, remote=True),
                resource=self._resource,
                attributes=attributes,
                links=[Link(_span_context(each)) for each in links],
                kind=SpanKind[kind],
                status=Status(StatusCode.ERROR, failed) if failed else Status(StatusCode.UNSET),
                start_time=times[0],
                end_time=times[1],
                instrumentation_scope=InstrumentationScope("snavio", program_version()),
            )
        )

    async def export(self) -> None:
        """Export what waits; Unavailable when the collector does not take it, and it is dropped."""
        while self._waiting:
            spans = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            if not await asyncio.to_thread(self._sent, spans):
                self._dropped += len(spans)
                raise Unavailable("The collector of traces did not take them.")
            self._told += len(spans)

    def _sent(self, spans: Sequence[ReadableSpan]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        return bool(self._exporter.export(spans) is SpanExportResult.SUCCESS)


def make_tracer(
    introspection: Introspection, *, exporter: str | None, clock: Clock, per_second: int
) -> Tracer:
    """The tracer of a process. StateError if the exporter is not installed."""
    found = None if exporter is None else find_exporter("traces_exporter", exporter, kind="traces")
    return Tracer(
        introspection.service,
        introspection,
        exporter=found,
        clock=clock,
        budget=TraceBudget(per_second=per_second),
    )


def _span_context(context: TraceContext, *, remote: bool = False) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(
        int(context.trace_id, 16), int(context.span_id, 16), is_remote=remote, trace_flags=TraceFlags(1)
    )


def _reason(code: int) -> str:
    try:
        return Verdict(code).reason
    except ValueError:
        return f"verdict-{code}"
