"""Judges requests of webhooks, in one order, each under one plan, and stores or sends those that it lets in.

Never answers 202 before the message is on disk, never takes a token for a request that has not shown who it is, and
never looks at two plans for one request.
"""

from __future__ import annotations

import os
from base64 import b32encode
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog

from services.gateway.edge.answers import DEFAULT_RETRY_MS, DUPLICATE, EdgeAnswer, RequestNotes
from services.gateway.edge.authenticating import before_body, signature
from services.gateway.edge.certificates import spiffe_uri
from services.gateway.edge.commanding import Commanding, ReplayTags, answer_of, command_id, refused_fields
from services.gateway.edge.forwarding import Forwarding
from services.gateway.edge.posting import Posting
from services.gateway.edge.running_plan import RunningPlan, RunningRoute
from services.gateway.edge.storing import delivery_id, envelope, packed, store, store_key, traceparent
from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.edge.matching import RouteMatch
from snavio.edge.requests import BadPath, EdgeRequest, client_address, request_path
from snavio.edge.signatures import PROVIDER_TOLERANCE_NS, VerifiedSignature
from snavio.edge.topics import HTTP_CONTENT_TYPE
from snavio.errors import BadRequest, Saturated, SnavioError, Unavailable
from snavio.host.shares import ShareLimit, Shares
from snavio.http.protocol import PEER
from snavio.rpc.throttle import Rate, Rates
from snavio.tracebacks import trace_of

LISTENER: Final = "ingress"
FAILURES: Final = Rate(burst=30, per_s=5.0)
MOST_BODIES: Final = 256 << 20
MOST_BODIES_PER_ADDRESS: Final = 128 << 20
_FORWARDED: Final = b"x-forwarded-for"
_log = structlog.get_logger(__name__)
Message = MutableMapping[str, Any]


class Dropped(Exception):
    """The client went away before its request was whole."""


class Ingress:
    """An ASGI application. `finished` is told of every request that was answered."""

    def __init__(
        self,
        *,
        posting: Posting,
        commanding: Commanding,
        forwarding: Forwarding,
        clock: Clock,
        finished: Callable[[RequestNotes, EdgeAnswer, int], None],
    ) -> None:
        self._posting = posting
        self._commanding = commanding
        self._forwarding = forwarding
        self._clock = clock
        self._finished = finished
        self._failures = Rates(FAILURES, clock=clock)
        self._tags = ReplayTags(clock)
        self.bodies = Shares("bytes", ShareLimit(MOST_BODIES, MOST_BODIES_PER_ADDRESS))
        """Bytes of bodies that are on their way in, by the address of their client."""
        self.running: RunningPlan | None = None
        """The plan in force; replaced as a whole."""
        self.draining = False

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Answer one request."""
        began = self._clock.mono_ns()
        notes = RequestNotes(new_request_id(), LISTENER, self._clock.unix_ns())
        try:
            answer = await self._judge(scope, receive, notes)
        except Dropped:
            return
        except SnavioError as error:
            notes.refused("internal", f"{error.reason}: {error}")
            answer = EdgeAnswer(
                503, error.reason, "The request could not be judged.", retry_after_ms=DEFAULT_RETRY_MS
            )
        except Exception as error:
            _log.error("request failed", path=notes.path[:200], stack=trace_of(error))
            notes.refused("internal", "an error in the gateway; its log has it")
            answer = EdgeAnswer(500, "internal", "The request could not be answered.")
        body = answer.body()
        await send(
            {
                "type": "http.response.start",
                "status": answer.status,
                "headers": answer.wire_headers(body, notes.request_id),
            }
        )
        await send({"type": "http.response.body", "body": body})
        self._finished(notes, answer, self._clock.mono_ns() - began)

    async def judge_dry(self, request: EdgeRequest, body: bytes, notes: RequestNotes) -> EdgeAnswer:
        """Take a request through every step but the last: nothing is taken from a bucket, sent or stored."""
        plan = self.running
        assert plan is not None
        found = self._route(plan, request, notes)
        if isinstance(found, EdgeAnswer):
            return found
        if (answer := self._before_body(found, request, notes)) is not None:
            return answer
        if len(body) > found.route.max_body:
            return _too_large(found, notes)
        judged = await self._after_body(found, request, body, notes, dry=True)
        if isinstance(judged, EdgeAnswer):
            return judged
        verified, more = judged
        given = delivery_id(found, request)
        if isinstance(given, EdgeAnswer):
            return given
        data = await packed(envelope(found, request, body, more, notes))
        if isinstance(data, EdgeAnswer):
            return data
        key = store_key(found, verified, given)
        if found.route.command is not None:
            notes.passed(
                "stored", f"it would be sent to {found.route.command.target} as {found.route.command.name}"
            )
        else:
            once = " once" if key.once else ""
            notes.passed(
                "stored", f"it would be stored{once} in " + ", ".join(each.topic for each in found.topics)
            )
        return EdgeAnswer(202, "queued")

    # -- the steps, in their order ---------------------------------------------------------------------

    async def _judge(self, scope: Message, receive: Any, notes: RequestNotes) -> EdgeAnswer:
        plan = self.running
        if plan is None or self.draining:
            return EdgeAnswer(503, "draining", "The gateway is ending.", close=True)
        try:
            request = _request(plan, scope, notes)
        except BadPath as wrong:
            notes.refused("listener", str(wrong))
            return EdgeAnswer(400, "bad-path", str(wrong), close=True)
        found = self._route(plan, request, notes)
        if isinstance(found, EdgeAnswer):
            return found
        if found.bucket is not None and (wait_s := found.bucket.wait_s(self._clock.mono_ns())):
            return _over_rate(found, wait_s, notes)
        if (answer := self._before_body(found, request, notes)) is not None:
            return self._failed(answer, notes)
        most = found.route.max_body
        if (said := request.header("content-length")) is not None and said.isdigit() and int(said) > most:
            return _too_large(found, notes)
        try:
            body = await _body(receive, most, self.bodies, notes.remote)
        except Saturated as error:
            notes.refused("size", "too many bodies are on their way in")
            return EdgeAnswer(
                503, "saturated", "The gateway is busy.", retry_after_ms=error.retry_after_ms, close=True
            )
        if body is None:
            return _too_large(found, notes)
        notes.bytes_in = len(body)
        judged = await self._after_body(found, request, body, notes)
        if isinstance(judged, EdgeAnswer):
            return self._failed(judged, notes)
        if found.bucket is not None and (wait_s := found.bucket.take(self._clock.mono_ns())):
            return _over_rate(found, wait_s, notes)
        return await self._keep(found, request, body, judged, notes)

    async def _keep(
        self,
        found: RunningRoute,
        request: EdgeRequest,
        body: bytes,
        judged: tuple[VerifiedSignature | None, tuple[tuple[bytes, bytes], ...]],
        notes: RequestNotes,
    ) -> EdgeAnswer:
        """Store or send what was let in."""
        verified, more = judged
        given = delivery_id(found, request)
        if isinstance(given, EdgeAnswer):
            notes.refused("schema", given.sentence)
            return given
        if found.route.command is not None:
            return await self._command(found, request, body, more, verified, given, notes)
        data = await packed(envelope(found, request, body, more, notes))
        if isinstance(data, EdgeAnswer):
            notes.refused("size", data.sentence)
            return data
        key = store_key(found, verified, given)
        return await store(found, data, key, body, notes, posting=self._posting, trace=traceparent(request))

    def _route(
        self, plan: RunningPlan, request: EdgeRequest, notes: RequestNotes
    ) -> RunningRoute | EdgeAnswer:
        match = plan.table.find(request)
        if match.place is None:
            return _no_route(match, notes)
        found = plan.routes[match.place]
        notes.route = found.route.path
        notes.passed("route", _passed(match, found.route.path))
        return found

    def _before_body(
        self, found: RunningRoute, request: EdgeRequest, notes: RequestNotes
    ) -> EdgeAnswer | None:
        size = sum(len(name) + len(value) + 4 for name, value in request.headers)
        if size > found.route.max_headers:
            notes.refused(
                "size", f"headers of {size:,} bytes; `max_headers` permits {found.route.max_headers:,}"
            )
            return EdgeAnswer(
                431, "headers-too-large", "The headers are larger than this route permits.", close=True
            )
        return before_body(found, request, notes)

    async def _after_body(
        self,
        found: RunningRoute,
        request: EdgeRequest,
        body: bytes,
        notes: RequestNotes,
        *,
        dry: bool = False,
    ) -> tuple[VerifiedSignature | None, tuple[tuple[bytes, bytes], ...]] | EdgeAnswer:
        auth = found.route.auth
        more: tuple[tuple[bytes, bytes], ...] = ()
        verified = None
        if auth.forward is not None:
            if dry:
                notes.passed("auth", f"forward: {auth.forward.url} would be asked")
            else:
                asked = await self._forwarding.ask(auth.forward, request, body, notes)
                if isinstance(asked, EdgeAnswer):
                    return asked
                more = asked
        if auth.hmac is not None:
            outcome = signature(found, request, body, notes, now_unix_ns=self._clock.unix_ns())
            if isinstance(outcome, EdgeAnswer):
                return outcome
            verified = outcome
        if found.open:
            notes.passed("auth", "the route asks for nothing")
        return verified, more

    async def _command(  # noqa: PLR0917 every one of them is a part of the request
        self,
        found: RunningRoute,
        request: EdgeRequest,
        body: bytes,
        more: tuple[tuple[bytes, bytes], ...],
        verified: VerifiedSignature | None,
        given: str,
        notes: RequestNotes,
    ) -> EdgeAnswer:
        command = found.route.command
        assert command is not None
        content_type = (request.header("content-type") or "")[:128]
        payload = body
        if command.envelope:
            payload, content_type = (
                envelope(found, request, body, more, notes).SerializeToString(),
                HTTP_CONTENT_TYPE,
            )
        tag = verified.tag if verified is not None else b""
        hmac = found.route.auth.hmac
        tolerance_ns = hmac.tolerance_ns if hmac and not hmac.provider else PROVIDER_TOLERANCE_NS
        claim = found.route.path.encode() + b"\0" + tag
        if tag and not self._tags.claim(claim, 2 * tolerance_ns):
            notes.refused("replay", "the same signature was accepted before")
            return EdgeAnswer(401, "replayed", "This signature was used before.")
        kept = False
        try:
            try:
                outcome = await self._commanding.send(
                    command,
                    payload,
                    content_type=content_type,
                    traceparent=traceparent(request),
                    command_id=command_id(found.route.path, delivery_id=given, tag=tag),
                )
            except BadRequest as error:
                notes.refused("stored", f"{error.reason}: {error}")
                return refused_fields(error)
            except Unavailable as error:
                notes.refused("stored", str(error))
                return EdgeAnswer(
                    503, error.reason, "The command could not be sent.", retry_after_ms=error.retry_after_ms
                )
            answer = answer_of(outcome)
            kept = answer.accepted
            if answer.accepted:
                notes.passed("stored", f"command {outcome.command_id}: {outcome.reason}")
            else:
                notes.refused(
                    "stored", f"command {outcome.command_id}: {outcome.reason} {outcome.detail}".rstrip()
                )
            if tag and outcome.verdict is Verdict.OUTCOME_UNKNOWN:
                self._tags.doubt(claim)
            elif answer.reason == DUPLICATE and tag and not given and not self._tags.doubted(claim):
                # Its id is made of the tag: what was stored before is this very request.
                notes.refused("replay", "the same signature was accepted before")
                return EdgeAnswer(401, "replayed", "This signature was used before.")
            return answer
        finally:
            if tag and not kept:
                self._tags.release(claim)

    def _failed(self, answer: EdgeAnswer, notes: RequestNotes) -> EdgeAnswer:
        """The answer to a request that has not shown who it is; an address that goes on failing is told to wait."""
        if answer.status not in (401, 403):
            return answer
        wait_s = self._failures.take(notes.remote)
        if not wait_s:
            return answer
        notes.refused("rate", "this address has failed too often")
        return EdgeAnswer(
            429,
            "too-many-failures",
            "Too many requests of this address were refused.",
            retry_after_ms=round(wait_s * 1000),
        )


def new_request_id() -> str:
    """`req_` and 16 characters that nobody can foresee."""
    return "req_" + b32encode(os.urandom(10)).decode("ascii").lower()


def _request(plan: RunningPlan, scope: Message, notes: RequestNotes) -> EdgeRequest:
    """The request as it is judged; BadPath where its path has two readings."""
    notes.method = scope["method"]
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    path = notes.path = request_path(scope["raw_path"])
    peer = scope["client"][0] if scope["client"] else ""
    forwarded: list[str] = []
    if plan.trusted:
        forwarded = [value.decode("latin-1") for name, value in headers if name == _FORWARDED]
    remote = client_address(peer, forwarded, plan.trusted)
    notes.remote = str(remote) if remote is not None else ""
    query = scope["query_string"].decode("latin-1")
    return EdgeRequest(notes.method, path, query, headers, remote, spiffe_uri(scope.get(PEER)))


async def _body(receive: Any, most: int, bodies: Shares, remote: str) -> bytes | None:
    """The whole body; None when it is larger than it may be, Saturated when too many are on their way in."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Dropped
    first: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return first if len(first) <= most else None
    parts, size, held = [first], len(first), 0
    try:
        while message.get("more_body"):
            if size > most:
                return None
            # Before it is read: thousands of slow bodies would fill the memory, each within its own bound.
            bodies.take(remote, size - held)
            held = size
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Dropped
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        return b"".join(parts) if size <= most else None
    finally:
        bodies.give_back(remote, held)


def _too_large(found: RunningRoute, notes: RequestNotes) -> EdgeAnswer:
    most = found.route.max_body
    notes.refused("size", f"the body is larger than the {most:,} bytes of `max_body`")
    return EdgeAnswer(413, "body-too-large", f"A body may have {most:,} bytes here.", close=True)


def _over_rate(found: RunningRoute, wait_s: float, notes: RequestNotes) -> EdgeAnswer:
    assert found.bucket is not None
    notes.refused("rate", f"more than {found.bucket.rate.rps:g} requests per second")
    return EdgeAnswer(
        429, "rate-limited", "Too many requests.", retry_after_ms=max(1, round(wait_s * 1000)), close=False
    )


def _no_route(match: RouteMatch, notes: RequestNotes) -> EdgeAnswer:
    why = "; ".join(f"{path} needs another {fault}" for path, fault in match.passed)
    if match.methods:
        allow = ", ".join(sorted(match.methods))
        notes.refused("method", why)
        return EdgeAnswer(
            405,
            "method-not-allowed",
            f"Permitted here: {allow}.",
            headers=((b"allow", allow.encode("ascii")),),
        )
    notes.refused("route", why or "no route has this path or one above it")
    return EdgeAnswer(404, "no-route", "No route takes this request.")


def _passed(match: RouteMatch, path: str) -> str:
    others = "; ".join(f"{each} did not: {fault}" for each, fault in match.passed)
    return f"{path} takes it" + (f" ({others})" if others else "")
