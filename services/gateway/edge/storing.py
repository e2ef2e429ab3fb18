"""Makes the stored form of a request, and the key under which it is stored once.

Never stores what a request showed in order to be let in.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from services.gateway.edge.answers import DUPLICATE, QUEUED, EdgeAnswer, RequestNotes
from services.gateway.edge.posting import MOST_BYTES, Posting, PostOutcome
from services.gateway.edge.running_plan import RunningRoute
from snavio.domain.verdict import Verdict
from snavio.edge.requests import EdgeRequest
from snavio.edge.signatures import PROVIDER_TOLERANCE_NS, VerifiedSignature
from snavio.edge.topics import HTTP_CONTENT_TYPE, event_id
from snavio.errors import Saturated, SnavioError
from snavio.v1.edge_pb2 import HttpEnvelope
from snavio.v1.mailbox_pb2 import NewMessage

DEFLATE_FROM: Final = 64 << 10
MOST_MESSAGE: Final = MOST_BYTES - 4096
DAY_MS: Final = 86_400_000
WEEK_MS: Final = 7 * DAY_MS
_NEVER: Final = frozenset({b"authorization", b"proxy-authorization", b"cookie", b"x-gitlab-token"})
_TRACE: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_ID: Final = re.compile(r"[\x21-\x7e]{1,256}")
_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class StoreKey:
    """The key under which a request is stored once."""

    key: str = ""
    replay_ms: int = 0
    once: bool = False
    """A repeat is a replay, and not a duplicate."""


def delivery_id(running: RunningRoute, request: EdgeRequest) -> str | EdgeAnswer:
    """The sender's own id of the delivery; empty when it gave none."""
    for name in running.delivery_ids:
        value = request.header(name)
        if value is None:
            continue
        if not _ID.fullmatch(value):
            return EdgeAnswer(
                400, "bad-delivery-id", f"The header `{name}` holds no id: 1 to 256 visible characters."
            )
        return value
    return ""


def store_key(running: RunningRoute, verified: VerifiedSignature | None, delivery: str) -> StoreKey:
    """The key of a request: its verified tag where that covers a time, otherwise the sender's own id."""
    route, ids = running.route, running.route.sender_ids
    window_ms = min(WEEK_MS, ids.window_ns // 1_000_000) if ids else DAY_MS
    if (
        verified is not None
        and verified.tag
        and not (ids and verified.signed_id and verified.signed_id == delivery)
    ):
        tolerance_ns = route.auth.hmac.tolerance_ns if route.auth.hmac and not route.auth.hmac.provider else 0
        window = 2 * (tolerance_ns or PROVIDER_TOLERANCE_NS) // 1_000_000
        return StoreKey(_key(route.path, b"tag", verified.tag), min(WEEK_MS, max(1000, window)), once=True)
    if delivery:
        return StoreKey(_key(route.path, b"id", delivery.encode()), max(1000, window_ms))
    return StoreKey()


def _key(route: str, kind: bytes, value: bytes) -> str:
    return hashlib.blake2b(route.encode() + b"\0" + kind + b"\0" + value, digest_size=24).hexdigest()


def envelope(
    running: RunningRoute,
    request: EdgeRequest,
    body: bytes,
    more: Sequence[tuple[bytes, bytes]],
    notes: RequestNotes,
) -> HttpEnvelope:
    """The request as it is stored; `more` are headers that a service that was asked has added."""
    found = HttpEnvelope(
        method=request.method,
        route=running.route.path,
        path=request.path,
        query=request.query,
        remote=notes.remote,
        received_unix_ns=notes.received_unix_ns,
        request_id=notes.request_id,
        caller=notes.caller,
        body=body,
    )
    add = found.header.add
    replaced = {name for name, _ in more}
    for name, value in request.headers:
        if name not in _NEVER and name not in replaced:
            add(name=name.decode("latin-1"), value=value)
    for name, value in more:
        add(name=name.decode("latin-1"), value=value)
    return found


def traceparent(request: EdgeRequest) -> str:
    """The sender's trace, where it gave one in the form of the standard."""
    value = request.header("traceparent") or ""
    return value if _TRACE.fullmatch(value) else ""


async def packed(found: HttpEnvelope) -> bytes | EdgeAnswer:
    """The stored bytes; a body that is large is deflated, and what does not fit even then is refused."""
    size = len(found.body)
    if size >= DEFLATE_FROM:
        # Not on the loop: a megabyte takes it ten milliseconds.
        smaller = await asyncio.to_thread(zlib.compress, found.body, _LEVEL)
        if len(smaller) < size:
            found.body, found.body_size = smaller, size
    data: bytes = found.SerializeToString()
    if len(data) > MOST_MESSAGE:
        return EdgeAnswer(
            413,
            "body-over-message",
            f"The request is {len(data):,} bytes as it would be stored; a message holds {MOST_MESSAGE:,}.",
        )
    return data


async def store(
    running: RunningRoute,
    data: bytes,
    key: StoreKey,
    body: bytes,
    notes: RequestNotes,
    *,
    posting: Posting,
    trace: str,
) -> EdgeAnswer:
    """Store a request for all targets of its route."""
    message = NewMessage(payload=data, content_type=HTTP_CONTENT_TYPE, traceparent=trace)
    if key.key:
        message.idem_key, message.replay_ms = key.key, key.replay_ms
        # The envelope differs from one sending to the next, in its time and in what proxies add.
        message.idem_content = hashlib.blake2b(body, digest_size=32).digest()
    topics = running.topics
    try:
        outcome = await posting.post([each.topic for each in topics], message, once=key.once)
    except Saturated as error:
        notes.refused("stored", str(error))
        return EdgeAnswer(503, "saturated", "The gateway is busy.", retry_after_ms=error.retry_after_ms)
    except SnavioError as error:
        notes.refused("stored", f"{error.reason}: {error}")
        retry_ms = getattr(error, "retry_after_ms", 0)
        return EdgeAnswer(503, "unavailable", "The request could not be stored.", retry_after_ms=retry_ms)
    ids = tuple(
        event_id(each.topic_hash, msg_id)
        for each, msg_id in zip(topics, outcome.msg_ids, strict=False)
        if msg_id
    )
    return _answer(key, outcome, ids, notes)


def _answer(key: StoreKey, outcome: PostOutcome, ids: tuple[str, ...], notes: RequestNotes) -> EdgeAnswer:
    match outcome.verdict:
        case Verdict.DELIVERED:
            notes.passed("stored", ", ".join(ids))
            return EdgeAnswer(202, QUEUED, event_ids=ids)
        case Verdict.DUPLICATE | Verdict.CONFLICT if key.once:
            notes.refused("replay", "the same signature was accepted before")
            return EdgeAnswer(401, "replayed", "This signature was used before.", event_ids=ids)
        case Verdict.DUPLICATE:
            notes.passed("duplicate", "the sender's id was stored before, with the same body")
            return EdgeAnswer(202, DUPLICATE, event_ids=ids)
        case Verdict.CONFLICT:
            notes.refused("duplicate", "the sender's id was stored before, with another body")
            return EdgeAnswer(409, "conflict", "This id was used before, for another body.")
    notes.refused("stored", outcome.detail)
    return EdgeAnswer(503, "saturated", "The route's queue is full.", retry_after_ms=outcome.retry_after_ms)
