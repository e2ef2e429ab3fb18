"""Looking after a topic, on the wire: peek, list and change, for its owner and for operators.

Never decides about a message itself, and never shows or changes anything of another tenant's topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.mailbox.access.capabilities import Capabilities
from services.mailbox.oversight.change_requests import Oversight, RequestedChange, purgeable
from services.mailbox.oversight.listing import Filter, Listing, SeenMessage
from services.mailbox.settle.changes import MessageOperation
from snavio.domain import caveat
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.message import KEPT_STATES, MAX_REASON_BYTES, MessageState
from snavio.errors import BadRequest, NotAllowed, NotFound
from snavio.rpc.server import Call, Methods
from snavio.v1 import mailbox_pb2 as wire

SERVICE = "/snavio.v1.Mailbox/"
DEFAULT_PEEK, MOST_PEEK = 10, 100
DEFAULT_LIST, MOST_LIST = 100, 1000


class OversightServicer:
    """One handler per method."""

    def __init__(
        self,
        *,
        listing: Listing,
        oversight: Oversight,
        capabilities: Capabilities,
        known: Callable[[str], object | None],
    ) -> None:
        self._listing = listing
        self._oversight = oversight
        self._capabilities = capabilities
        self._known = known

    def register(self, methods: Methods) -> None:
        """Serve them."""
        methods.unary(SERVICE + "Peek", self.peek, wire.PeekRequest, strict=True)
        methods.unary(SERVICE + "List", self.list, wire.ListRequest, strict=True)
        methods.unary(SERVICE + "Change", self.change, wire.ChangeRequest, strict=True)

    async def peek(self, request: Any, call: Call) -> wire.ListResponse:
        """The oldest ready messages."""
        self._require(call, caveat.Operation.PEEK, request.topic)
        limit = _limit(request.limit, DEFAULT_PEEK, MOST_PEEK)
        ready = Filter(states=frozenset({MessageState.READY}))
        sights, _ = await self._listing.page(request.topic, ready, after=0, limit=limit)
        return wire.ListResponse(message=[_view(one, payload=True) for one in sights])

    async def list(self, request: Any, call: Call) -> wire.ListResponse:
        """A page of messages."""
        self._require(call, caveat.Operation.LIST, request.topic)
        limit = _limit(request.limit, DEFAULT_LIST, MOST_LIST)
        sights, following = await self._listing.page(
            request.topic,
            read_filter(request.filter),
            after=request.after,
            limit=limit,
            newest_first=request.newest_first,
        )
        views = [_view(one, payload=request.payload) for one in sights]
        return wire.ListResponse(message=views, next=following)

    async def change(self, request: Any, call: Call) -> wire.ChangeResponse:
        """A preview of a change, or the change."""
        self._require(call, caveat.Operation.MANAGE, request.topic)
        wish = read_wish(request, by=call.peer.identity)
        if request.preview:
            done = await self._oversight.preview(wish)
        else:
            done = await self._oversight.carry_out(wish, request.token)
        return wire.ChangeResponse(
            matched=done.matched,
            changed=done.changed,
            sample=[_view(one, payload=False) for one in done.samples],
            token=done.token,
        )

    def _require(self, call: Call, operation: caveat.Operation, topic: str) -> None:
        identity = call.peer.identity
        if not may_see(topic, identity):
            raise NotAllowed("This topic belongs to another tenant.", reason="not-owner")
        self._capabilities.check(call, operation, topic)
        if self._known(topic) is None:
            raise NotFound("There is no such topic.", reason="unknown-topic")


def may_see(topic: str, identity: Identity) -> bool:
    """True when the topic is the caller's, or the caller is an operator."""
    own = identity.tenant != "" and topic.startswith(identity.tenant + "/")
    return own or identity.kind is IdentityKind.OPERATOR


def read_filter(asked: Any) -> Filter:
    """The filter of a request."""
    try:
        states = frozenset(MessageState(number) for number in asked.state if number)
    except ValueError:
        raise BadRequest("filter.state: must be a state that the mailbox knows.", reason="filter") from None
    if MessageState.PURGED in states:
        raise BadRequest("filter.state: purged messages are gone.", reason="filter")
    return Filter(
        states=states or KEPT_STATES,
        stored_from_unix_ns=asked.stored_from_unix_ns,
        stored_before_unix_ns=asked.stored_before_unix_ns,
        source=asked.source,
        name=asked.name,
        command_id=asked.command_id,
        dead_reason=asked.dead_reason,
        min_attempts=asked.min_attempts,
        attributes=tuple(sorted(asked.attribute.items())),
        idem_key=asked.idem_key,
    )


def read_wish(request: Any, *, by: Identity) -> RequestedChange:
    """The change of a request."""
    try:
        operation = MessageOperation(request.operation)
    except ValueError:
        raise BadRequest("operation: must be cancel, resume, requeue or purge.", reason="operation") from None
    if len(request.reason.encode()) > MAX_REASON_BYTES:
        raise BadRequest(f"reason is longer than {MAX_REASON_BYTES} bytes.", reason="reason-too-long")
    by_filter = request.HasField("filter")
    if by_filter == bool(request.msg_id):
        raise BadRequest("Name either messages or a filter.", reason="ids-or-filter")
    wanted = read_filter(request.filter) if by_filter else None
    if operation is MessageOperation.PURGE and wanted is not None and not purgeable(wanted.states):
        raise BadRequest("To purge by filter, name the states to purge.", reason="purge-all")
    reason = request.reason or f"by {by.kind.value} {by.name}"
    return RequestedChange(request.topic, operation, tuple(request.msg_id), wanted, reason)


def _limit(asked: int, default: int, most: int) -> int:
    if asked > most:
        raise BadRequest(f"limit is over {most}.", reason="limit")
    return asked or default


def _view(one: SeenMessage, *, payload: bool) -> Any:
    stretch, content = one.stretch, one.content
    view: Any = wire.MessageView(
        msg_id=one.msg_id,
        stored_unix_ns=one.stored_unix_ns,
        unreadable=one.unreadable,
    )
    view.state, view.shard = int(stretch.state), one.shard
    history = stretch.retrying.history
    if stretch.ending is not None:
        ending, history = stretch.ending, stretch.ending.history
        view.attempt, view.ended_unix_ns = ending.attempt, ending.at_unix_ns
        view.reason, view.last_error = ending.reason, ending.last_error
    elif stretch.state is not MessageState.DELIVERED:
        view.attempt = stretch.lease.attempt if stretch.lease else stretch.retrying.attempt
        view.next_run_at_unix_ns = 0 if stretch.lease else stretch.retrying.not_before_unix_ns
    for record in history:
        view.attempt_record.add(
            attempt=record.attempt,
            at_unix_ns=record.at_unix_ns,
            outcome=int(record.outcome),
            reason=record.reason,
        )
    if content is not None:
        view.source, view.command_id, view.target = content.source, content.id, content.target
        view.name, view.content_type = content.name, content.content_type
        view.payload_bytes = len(content.payload)
        view.idem_key = content.idem_key
        view.attribute.update(dict(content.attrs))
        if payload:
            view.payload = content.payload
    return view
