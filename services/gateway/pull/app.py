"""The Pull API over HTTP: which endpoint and operation a request names, whether it may, and its answer.

Never says more than "unauthorized" to a caller without a token, and never keeps a message for a worker that has left.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b32encode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from services.gateway.pull import requests
from services.gateway.pull.endpoints import PullEndpoint, PullLimits, PullTable, joined
from services.gateway.pull.items import item, serialised
from services.gateway.pull.leases import LeaseState, PullLeases
from services.gateway.pull.requests import Dequeue, InvalidRequest
from services.gateway.pull.waiting import HandedMessages
from snavio.clock import Clock
from snavio.edge.references import SecretReference
from snavio.errors import BadRequest, Saturated, SnavioError, Unavailable
from snavio.host.shares import ShareLimit, Shares

MOST_WAITING: Final = 4096
BODY_SECONDS: Final = 30.0
MOST_ANSWER_BYTES: Final = 32 << 20
"""Of payloads: an answer that has so many takes no further message."""
WRITE_SECONDS: Final = 30.0
"""For a worker to take what was written to its stream."""
RETRY_AFTER_S: Final = 1
Headers = Sequence[tuple[bytes, bytes]]
Authorise = Callable[[Headers, Sequence[SecretReference]], bool]
"""True when the headers show one of these tokens; raises Unavailable when they cannot be read."""
Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PullRecord:
    """One request, for logs and counters."""

    request_id: str
    received_unix_ns: int
    path: str
    route: str
    """Empty where no endpoint was found, or the caller showed no token for it."""
    operation: str
    status: int
    code: str
    messages: int
    """Leased, or settled."""
    conflicts: int
    remote: str
    duration_ns: int


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """An answer; `messages` and `conflicts` are for logs and counters."""

    status: int
    body: bytes = b""
    code: str = ""
    messages: int = 0
    conflicts: int = 0
    retry_after_s: int = 0
    allow: str = ""

    @classmethod
    def problem(cls, status: int, code: str, detail: str, **more: Any) -> PullAnswer:
        """A refusal."""
        return cls(status, serialised({"code": code, "detail": detail}), code, **more)


@dataclass(frozen=True, slots=True)
class _StreamTerms:
    limits: PullLimits
    request_id: str


UNAUTHORISED: Final = PullAnswer.problem(401, "unauthorized", "The request shows no token that is good here.")
GONE: Final = PullAnswer(499, code="left")


class PullApp:
    """An ASGI application. `table` may be replaced at any time: a request ends under the one it began with."""

    def __init__(
        self,
        leases: PullLeases,
        *,
        authorise: Authorise,
        clock: Clock,
        finished: Callable[[PullRecord], None] = lambda _record: None,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self.table = PullTable()
        self._leases = leases
        self._authorise = authorise
        self._clock = clock
        self._finished = finished
        # One route's workers must leave room for those of the others.
        self.waiting = Shares("pull_requests", ShareLimit(most_waiting, max(1, most_waiting // 2)))
        self.streams = 0
        """Streams that stand now."""
        self._stopping = False
        self._log = structlog.get_logger()

    def stop(self) -> None:
        """Answer those who wait, end streams, and take no more."""
        self._stopping = True
        self._leases.wake()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began, at_ns = self._clock.mono_ns(), self._clock.unix_ns()
        request_id = "req_" + b32encode(os.urandom(10)).decode("ascii").lower()
        table, path = self.table, joined("", scope["path"])
        base, _, operation = path.rpartition("/")
        endpoint = table.endpoints.get(base or "/")
        try:
            answer = self._refused(scope, table, endpoint, operation)
            if answer is None:
                assert endpoint is not None
                if operation == "stream":
                    terms = _StreamTerms(table.limits, request_id)
                    wanted = requests.read_stream(scope["query_string"], table.limits)
                    answer = await self._stream(receive, send, endpoint, wanted, terms)
                else:
                    answer = await self._answer(receive, table, endpoint, operation)
        except InvalidRequest as error:
            answer = PullAnswer.problem(400, "invalid_body", str(error))
        except SnavioError as error:
            answer = self._unavailable(error)
        except asyncio.CancelledError:
            raise
        except Exception:
            self._log.exception("pull failed", operation=operation)
            answer = PullAnswer.problem(500, "internal_error", "The gateway failed; its log says more.")
        if answer is not GONE and answer.status:
            await _send(send, answer, request_id, closing=self._stopping)
        authorised = endpoint is not None and answer.status != UNAUTHORISED.status
        client = scope.get("client")
        self._finished(
            PullRecord(
                request_id=request_id,
                received_unix_ns=at_ns,
                path=path,
                route=endpoint.route if endpoint is not None and authorised else "",
                operation=operation if endpoint is not None else "",
                status=answer.status or 200,
                code=answer.code,
                messages=answer.messages,
                conflicts=answer.conflicts,
                remote=client[0] if client else "",
                duration_ns=self._clock.mono_ns() - began,
            )
        )

    # -- who, and what ---------------------------------------------------------------------------------

    def _refused(
        self, scope: Scope, table: PullTable, endpoint: PullEndpoint | None, operation: str
    ) -> PullAnswer | None:
        tokens = table.tokens if endpoint is None else endpoint.tokens
        if not self._authorise(scope["headers"], tokens):
            return UNAUTHORISED
        if endpoint is None:
            return PullAnswer.problem(404, "route_not_found", "No pull endpoint has this path.")
        if operation not in ("dequeue", "ack", "nack", "extend", "stream"):
            words = "The operations are dequeue, ack, nack, extend and stream."
            return PullAnswer.problem(404, "operation_not_found", words)
        needed = "GET" if operation == "stream" else "POST"
        if scope["method"] != needed:
            return PullAnswer.problem(
                405, "method_not_allowed", f"The method must be {needed}.", allow=needed
            )
        if self._stopping:
            raise Unavailable("The gateway is stopping.", reason="stopping")
        return None

    def _unavailable(self, error: SnavioError) -> PullAnswer:
        if isinstance(error, BadRequest):
            return PullAnswer.problem(400, "invalid_body", str(error))
        if not isinstance(error, Saturated | Unavailable):
            # Of the gateway's own right to the topic: nothing that a worker could mend.
            self._log.error("the mailbox refused the gateway", reason=error.reason, message=str(error))
        hint_ms = error.retry_after_ms if isinstance(error, Saturated | Unavailable) else 0
        hint = max(RETRY_AFTER_S, -(-hint_ms // 1000))
        words = f"No messages can be fetched at the moment ({error.reason})."
        return PullAnswer.problem(503, "store_unavailable", words, retry_after_s=hint)

    async def _answer(
        self, receive: Receive, table: PullTable, endpoint: PullEndpoint, operation: str
    ) -> PullAnswer:
        body = await _body(receive)
        if body is None:
            return GONE
        limits = table.limits
        if operation == "dequeue":
            return await self._dequeue(receive, endpoint, requests.read_dequeue(body, limits))
        if operation == "extend":
            extend = requests.read_extend(body, limits)
            return _settled(
                await self._leases.extend(endpoint.topic, extend), "succeeded", single=extend.single
            )
        if operation == "ack":
            asked = requests.read_ack(body, limits)
            return _settled(await self._leases.ack(endpoint.topic, asked), "acked", single=asked.single)
        asked = requests.read_nack(body, limits)
        return _settled(await self._leases.nack(endpoint.topic, asked), "succeeded", single=asked.single)

    # -- messages --------------------------------------------------------------------------------------

    async def _dequeue(self, receive: Receive, endpoint: PullEndpoint, asked: Dequeue) -> PullAnswer:
        wait_s = asked.wait_ns / 1e9
        if wait_s > 0:
            self.waiting.take(endpoint.route)
        watching = asyncio.create_task(_left(receive), name="pull worker leaves")
        try:
            leased = await self._take(endpoint, asked, wait_s, watching)
            if leased is None:
                return GONE
            told, size = [], 0
            for number, message in enumerate(leased.messages):
                if size >= MOST_ANSWER_BYTES:
                    # What was deflated may be a thousand times as large: the rest comes with the next request.
                    rest = HandedMessages(leased.boot_epoch, leased.messages[number:])
                    self._leases.left(endpoint.topic, asked.lease_ms, rest)
                    break
                lease_id = self._leases.lease_id(endpoint.topic, leased, number)
                told.append(item(endpoint, message, lease_id))
                size += len(told[-1]["payload_b64"])
            return PullAnswer(200, serialised({"items": told}), messages=len(told))
        finally:
            watching.cancel()
            if wait_s > 0:
                self.waiting.give_back(endpoint.route)

    async def _take(
        self, endpoint: PullEndpoint, asked: Dequeue, wait_s: float, watching: asyncio.Task[None]
    ) -> HandedMessages | None:
        """Messages leased for a worker; None when it left, and then nothing is leased."""
        taking = asyncio.create_task(
            self._leases.take(endpoint.topic, batch=asked.batch, lease_ms=asked.lease_ms, wait_s=wait_s),
            name="pull",
        )
        try:
            await asyncio.wait((taking, watching), return_when=asyncio.FIRST_COMPLETED)
            if not watching.done():
                return taking.result()
        finally:
            if not taking.done():
                taking.cancel()
                with suppress(asyncio.CancelledError, SnavioError):
                    await taking
            if watching.done() and not taking.cancelled() and taking.exception() is None:
                self._leases.left(endpoint.topic, asked.lease_ms, taking.result())
        return None

    async def _stream(
        self, receive: Receive, send: Send, endpoint: PullEndpoint, asked: Dequeue, stream: _StreamTerms
    ) -> PullAnswer:
        self.waiting.take(endpoint.route)
        self.streams += 1
        watching = asyncio.create_task(_left(receive), name="pull worker leaves")
        sent = 0
        try:
            # Exactly this type: some clients take nothing with a charset behind it.
            headers = [
                (b"content-type", b"text/event-stream"),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),
                (b"x-request-id", stream.request_id.encode()),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            writing = self._write_messages(send, endpoint, asked, stream, watching=watching)
            sent = await writing
            if not watching.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(WRITE_SECONDS):
                        await send({"type": "http.response.body", "body": b""})
            return PullAnswer(0, messages=sent)
        finally:
            watching.cancel()
            self.streams -= 1
            self.waiting.give_back(endpoint.route)

    async def _write_messages(
        self,
        send: Send,
        endpoint: PullEndpoint,
        asked: Dequeue,
        stream: _StreamTerms,
        *,
        watching: asyncio.Task[None],
    ) -> int:
        """Write messages as they come, until the worker leaves, its time is over or the gateway stops; how many."""
        limits, sent = stream.limits, 0
        longest = limits.max_connection_ns
        end_ns = None if longest is None else self._clock.mono_ns() + longest
        while not (self._stopping or watching.done()):
            now_ns = self._clock.mono_ns()
            if end_ns is not None and now_ns >= end_ns:
                break
            wait_ns = limits.keepalive_ns if end_ns is None else min(limits.keepalive_ns, end_ns - now_ns)
            try:
                leased = await self._take(endpoint, asked, wait_ns / 1e9, watching)
            except SnavioError as error:
                self._unavailable(error)
                await _write(send, b"event: error\ndata: dequeue is temporarily unavailable\n\n")
                break
            if leased is None:
                break
            if not leased.messages:
                if not await _write(send, b": keepalive\n\n"):
                    break
                continue
            for number, message in enumerate(leased.messages):
                lease_id = self._leases.lease_id(endpoint.topic, leased, number)
                told = serialised(item(endpoint, message, lease_id))
                event = b"id: %s\nevent: message\ndata: %s\n\n" % (lease_id.encode(), told)
                if watching.done() or not await _write(send, event):
                    # The one that was being written may have arrived; those behind it have not.
                    behind = number if watching.done() else number + 1
                    rest = HandedMessages(leased.boot_epoch, leased.messages[behind:])
                    self._leases.left(endpoint.topic, asked.lease_ms, rest)
                    return sent
                sent += 1
        return sent


def _settled(states: dict[str, LeaseState], word: str, *, single: bool) -> PullAnswer:
    conflicts = [
        {"lease_id": lease_id, "reason": state.value}
        for lease_id, state in states.items()
        if state is not LeaseState.DONE
    ]
    done = len(states) - len(conflicts)
    told: dict[str, Any] = {word: done}
    if conflicts:
        detail = "One or more leases are unknown or have ended."
        told |= {"code": "lease_conflict", "detail": detail, "conflicts": conflicts}
        if single:
            del told[word]
        return PullAnswer(409, serialised(told), "lease_conflict", done, len(conflicts))
    return PullAnswer(204, messages=done) if single else PullAnswer(200, serialised(told), messages=done)


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None when the worker left before its end."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > requests.MAX_BODY_BYTES:
                    raise InvalidRequest(f"A body has at most {requests.MAX_BODY_BYTES} bytes.")
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise InvalidRequest("The body did not come in time.") from None


async def _left(receive: Receive) -> None:
    """Until the worker has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, part: bytes) -> bool:
    """False when the worker does not take it."""
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await send({"type": "http.response.body", "body": part, "more_body": True})
    except (TimeoutError, OSError):
        return False
    return True


async def _send(send: Send, answer: PullAnswer, request_id: str, *, closing: bool) -> None:
    headers = [(b"x-request-id", request_id.encode()), (b"cache-control", b"no-store")]
    if answer.status != 204:
        headers += [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(answer.body)).encode()),
        ]
    if answer.retry_after_s:
        headers.append((b"retry-after", str(answer.retry_after_s).encode()))
    if answer.allow:
        headers.append((b"allow", answer.allow.encode()))
    if answer.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if closing:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
