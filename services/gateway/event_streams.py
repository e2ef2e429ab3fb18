"""Opens event streams, and ends them when their reader's certificate or capability does not count any more.

Never begins a stream before Relay has recorded who opened it, and never lets one outlive the right to it by more than
a few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final

import structlog
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.gateway.audit import Audit
from services.gateway.callers import Callers, CheckCapability, Reader, StreamScope
from services.gateway.feeds import Feeds
from services.gateway.positions import Positions
from services.gateway.settings import GatewaySettings
from snavio.clock import Clock
from snavio.domain.stream import FAMILIES, TYPE_PREFIX, resume
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Saturated, SnavioError
from snavio.host.shares import Shares
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.throttle import Rate, Rates
from snavio.signed.stream_chain import EnvelopeRefused

OPERATION: Final = "GET /v1/tenants/{tenant}/events"
LOOK_SECONDS: Final = 2.0
MOST_SOURCES: Final = 64
SEPARATOR: Final = "\n"
_log = structlog.get_logger(__name__)
_NOT_ANY_MORE: Final = frozenset({Verdict.CERTIFICATE_EXPIRED, Verdict.CERTIFICATE_REVOKED})


def frame(seq: int, body: bytes) -> bytes:
    """One envelope as an event: its number is the id, the envelope itself the data."""
    return ServerSentEvent(body.decode("utf-8"), id=str(seq), sep=SEPARATOR).encode()


class OpenStream:
    """One stream that is being served."""

    def __init__(self, caller: Reader, since_mono_ns: int) -> None:
        self.caller = caller
        self.since_mono_ns = since_mono_ns
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.why = ""

    def end(self, why: str) -> None:
        """Ask it to end; its reader goes on from its last event."""
        self.why = self.why or why
        if not self.over.done():
            self.over.set_result(None)


class _StreamResponse(EventSourceResponse):
    """A stream of events that is over when its response is, also when the reader left before its first event."""

    def __init__(self, events: AsyncIterator[bytes], *, over: Callable[[], None], **given: Any) -> None:
        super().__init__(events, **given)
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            # A reader that does not read; the connection is worth nothing without the rest of its response.
            _log.info("a reader was cut off", client=str((scope.get("client") or ("",))[0]))
        finally:
            self._over()


class EventStreams:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        callers: Callers,
        positions: Positions,
        feeds: Feeds,
        audit: Audit,
        gate: CertificateGate,
        check_capability: CheckCapability,
        streams: Shares,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._callers = callers
        self._positions = positions
        self._feeds = feeds
        self._audit = audit
        self._gate = gate
        self._check_capability = check_capability
        self._streams = streams
        self._clock = clock
        per_minute = settings.opens_per_minute
        self._opens = Rates(Rate(burst=per_minute, per_s=per_minute / 60), clock=clock)
        self._open: set[OpenStream] = set()
        self._ended: dict[str, int] = {}

    async def open(self, request: Request) -> Response:
        """The answer to one reader; raises what speaks against it."""
        caller = await self._callers.admit(request, OPERATION)
        scope = caller.scope.narrowed(_filters(request))
        position = await self._positions.window(caller.tenant)
        first = resume(_last_event_id(request), position.low, position.high)
        wait_s = self._opens.take(caller.tenant)
        if wait_s:
            raise Saturated(
                f"{caller.tenant} opens streams too often.",
                reason="opens-per-minute",
                retry_after_ms=max(1, round(wait_s * 1000)),
            )
        self._streams.take(caller.tenant)
        try:
            await self._audit.opened(caller, scope, after=first - 1)
        except BaseException:
            self._streams.give_back(caller.tenant)
            raise
        opened = OpenStream(caller, self._clock.mono_ns())
        self._open.add(opened)
        return _StreamResponse(
            self._events(opened, scope, after=first - 1, high=position.high),
            over=lambda: self._over(opened),
            ping=self._settings.heartbeat_s,
            sep=SEPARATOR,
            send_timeout=self._settings.write_limit_s,
            headers={"x-snavio-stream-epoch": str(position.epoch)},
        )

    def gauges(self) -> dict[str, float]:
        """The number of open streams, under its catalogued name."""
        return {"sse_active_streams": float(len(self._open))}

    def counters(self) -> dict[str, int]:
        """Ends by reason."""
        return dict(self._ended)

    async def look(self) -> None:
        """End streams that are too old, or whose reader has no right any more."""
        now = self._clock.mono_ns()
        oldest_ns = round(self._settings.stream_age_s * 1e9)
        for opened in list(self._open):
            verdict = self._gate.judge(opened.caller.peer)
            if verdict in _NOT_ANY_MORE:
                self._gate.check(opened.caller.peer)
                opened.end(verdict.reason)
            elif now - opened.since_mono_ns >= oldest_ns:
                opened.end("age")
            elif opened.caller.capability and not await self._capability_holds(opened.caller):
                opened.end("capability")
        await self._feeds.sweep()

    async def stop(self) -> None:
        """End all of them."""
        for opened in self._open:
            opened.end("draining")

    async def _capability_holds(self, caller: Reader) -> bool:
        try:
            await self._check_capability(caller.capability, caller.peer, caller.tenant)
        except SnavioError:
            # Also when it cannot be checked: nothing goes on because a check could not run.
            return False
        return True

    async def _events(
        self, opened: OpenStream, scope: StreamScope, *, after: int, high: int
    ) -> AsyncIterator[bytes]:
        tenant = opened.caller.tenant
        feed = self._feeds.enter(tenant, high=high)
        try:
            async with aclosing(feed.read(after, scope, over=opened.over)) as found:
                async for served in found:
                    yield served.frame
        except EnvelopeRefused as refused:
            opened.why = refused.fault.value
            await self._audit.refused(opened.caller, refused)
        except SnavioError as error:
            opened.why = error.reason
        finally:
            self._feeds.leave(tenant, feed)

    def _over(self, opened: OpenStream) -> None:
        self._open.discard(opened)
        self._streams.give_back(opened.caller.tenant)
        why = opened.why or "left"
        self._ended[why] = self._ended.get(why, 0) + 1


def _last_event_id(request: Request) -> str | None:
    given = request.headers.getlist("last-event-id")
    if len(given) > 1:
        raise BadRequest("Last-Event-ID: more than one.", reason="bad-last-event-id")
    return given[0] if given else None


def _filters(request: Request) -> StreamScope:
    """The part that a reader asks for; any other parameter is refused, as it would choose nothing."""
    if unknown := sorted(set(request.query_params) - {"source", "type", "only"}):
        raise BadRequest(
            f"{unknown[0][:80]}: no such parameter; there are source, type and only.", reason="bad-field"
        )
    only = request.query_params.getlist("only")
    if only not in ([], ["failures"]):
        raise BadRequest(f"only: {only[0][:80]!r} is none; there is failures.", reason="bad-field")
    sources = frozenset(request.query_params.getlist("source"))
    families = frozenset(text.removeprefix(TYPE_PREFIX) for text in request.query_params.getlist("type"))
    if wrong := sorted(families - set(FAMILIES)):
        raise BadRequest(
            f"type: {wrong[0][:80]!r} is none; there are {', '.join(FAMILIES)}.", reason="bad-field"
        )
    if len(sources) > MOST_SOURCES:
        raise BadRequest(f"source: at most {MOST_SOURCES}.", reason="bad-field")
    return StreamScope(sources, families, failures=bool(only))
