"""A tenant's signed events as they come: verified, in order, from where the reader stopped.

Never hands out an envelope that is not signed by the tenant's key or does not continue the chain, and never moves the
bookmark before the reader has come back for the next one.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snavio.clock import Clock, SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.domain.stream import Position
from snavio.errors import BadRequest, IntegrityError, NotFound, Saturated, Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk.bookmark import Bookmark, MemoryBookmark, StreamPlace
from snavio.sdk.endable_items import EndableItems
from snavio.sdk.event_connection import GatewayConnection, StreamGone
from snavio.sdk.nonce_set import NonceSet
from snavio.sdk.server_sent_events import EventFrame, EventReader
from snavio.signed.stream_chain import (
    ChainEnd,
    EnvelopeFault,
    EnvelopeRefused,
    StreamChain,
    VerifiedEnvelope,
    keys_from_signer,
)
from snavio.signed.stream_statement import StreamStatement, verified_position, verified_state

FIRST_PAUSE_S: Final = 0.2
NEW_TENANT_NS: Final = 5 * 10**9
"""So long a tenant may be unknown: a gateway hears of one that was created a moment ago with its next look."""
LONGEST_PAUSE_S: Final = 15.0
UNKNOWN_TENANT: Final = "unknown-tenant"
MOST_REFUSALS: Final = 8
"""In a row, until the reader is told: a server that lies will not stop because it is asked again."""


@dataclass(frozen=True, slots=True)
class StreamReset:
    """Envelopes after the bookmark are no longer kept; `state` is the tenant's signed state, to go on from."""

    state: StreamStatement


@dataclass(frozen=True, slots=True)
class ReceivedEvents:
    """One verified envelope."""

    verified: VerifiedEnvelope

    @property
    def seq(self) -> int:
        """Its number."""
        return self.verified.envelope.seq

    @property
    def source(self) -> str:
        """`<tenant>/<service>`; empty for events that are not about one source."""
        return str(self.verified.envelope.payload["source"])

    @property
    def events(self) -> Sequence[dict[str, object]]:
        """Its events under the catalogue's names."""
        found: Sequence[dict[str, object]] = self.verified.envelope.payload["events"]
        return found


class EventStream:
    """`async for item in EventStream(...)`: `ReceivedEvents` for each envelope, a `StreamReset` where some were missed.

    Without a bookmark it begins with what comes from now on. The handler of an item is done when the next one is asked
    for; only then the bookmark moves. Raises when the gateway refuses the reader itself, or when what comes cannot be
    believed again and again.
    """

    def __init__(
        self,
        *,
        gateway: str,
        signer: str,
        tenant: str,
        certificates: str | Path,
        bookmark: Bookmark | None = None,
        sources: Sequence[str] = (),
        types: Sequence[str] = (),
        only_failures: bool = False,
        capability: str = "",
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
        clock: Clock | None = None,
    ) -> None:
        if not tenant:
            raise BadRequest("tenant: whose events?", reason="bad-field")
        files = CertificateFiles.in_folder(certificates)
        self._tenant = tenant
        self._path = f"/v1/tenants/{tenant}"
        self._parameters = [("source", each) for each in sources] + [("type", each) for each in types]
        self._parameters += [("only", "failures")] if only_failures else []
        self._gateway = GatewayConnection(
            gateway, files=files, trust_domain=trust_domain, capability=capability
        )
        self._signer = MeshChannel(signer, files=files, service="signer", trust_domain=trust_domain)
        self._keys = keys_from_signer(self._signer, tenant)
        self._bookmark = bookmark or MemoryBookmark()
        self._clock = clock or SystemClock()
        self._nonces = NonceSet(clock=self._clock)
        self._counts: Counter[str] = Counter()
        self._items = EndableItems(self._read())

    def __aiter__(self) -> AsyncIterator[ReceivedEvents | StreamReset]:
        return self._items

    async def close(self) -> None:
        """End the connection. For a task that is waiting for the next item the iteration ends."""
        await self._items.end()
        await self._signer.close()

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def rewind(self) -> None:
        """Begin with the oldest envelope that is kept. To be called before the first item is asked for."""
        try:
            body = await self._gateway.get(f"{self._path}/state")
        except NotFound as error:
            if error.reason != "not-provisioned":
                raise
            return
        state = verified_state(body, tenant=self._tenant, keys=await self._keys())
        self._bookmark.move(StreamPlace(state.position.low))

    def counters(self) -> dict[str, int]:
        """Refused envelopes by outcome, replays, connections; and the size of the nonce set."""
        return {
            **self._counts,
            "sse_nonce_replay_total": self._nonces.replays,
            "sse_nonce_live_size": len(self._nonces),
        }

    async def _read(self) -> AsyncGenerator[ReceivedEvents | StreamReset, None]:
        pause_s, refusals = FIRST_PAUSE_S, 0
        unknown_since_ns: int | None = None
        place = self._bookmark.read()
        while True:
            hint_s = 0.0
            try:
                async for item, after in self._connected(place):
                    yield item
                    place = after
                    self._bookmark.move(place)
                    pause_s, refusals, unknown_since_ns = FIRST_PAUSE_S, 0, None
            except StreamGone as gone:
                refusals += 1
                try:
                    reset = await self._reset(place, gone)
                except (IntegrityError, Unavailable, Saturated, NotFound) as error:
                    self._counts["sse_reset_failures_total"] += 1
                    if refusals >= MOST_REFUSALS:
                        raise error from None
                else:
                    yield StreamReset(reset)
                    place = _place_of(reset.position)
                    self._bookmark.move(place)
            except EnvelopeRefused as refused:
                refusals += 1
                outcome = refused.fault.value
                self._counts[f'sse_envelope_verification_failures_total{{outcome="{outcome}"}}'] += 1
                if refusals >= MOST_REFUSALS:
                    raise
            except NotFound as unknown:
                now = self._clock.mono_ns()
                unknown_since_ns = now if unknown_since_ns is None else unknown_since_ns
                if unknown.reason != UNKNOWN_TENANT or now - unknown_since_ns > NEW_TENANT_NS:
                    raise
            except (Unavailable, Saturated) as away:
                hint_s = getattr(away, "retry_after_ms", 0) / 1000
            # Also after a clean end: a server that ends every stream at once must not be asked without a pause.
            await asyncio.sleep(max(hint_s, pause_s * random.uniform(0.5, 1.0)))  # noqa: S311 spreads load
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def _connected(
        self, place: StreamPlace | None
    ) -> AsyncGenerator[tuple[ReceivedEvents, StreamPlace], None]:
        """One connection, to its end."""
        end = None if place is None else ChainEnd(place.seq, place.digest or None)
        chain = StreamChain(
            self._tenant, keys=self._keys, clock=self._clock, after=end, gaps=bool(self._parameters)
        )
        reader = EventReader()
        self._counts["sse_connections_total"] += 1
        async with self._gateway.events(
            f"{self._path}/events",
            parameters=self._parameters,
            last_event_id=None if place is None else str(place.seq),
        ) as chunks:
            async for chunk in chunks:
                try:
                    found = list(reader.feed(chunk))
                except BadRequest as error:
                    raise EnvelopeRefused(EnvelopeFault.DECODE, str(error)) from None
                for event in found:
                    verified = await self._verified(chain, event)
                    if verified is not None:
                        seq = verified.envelope.seq
                        yield ReceivedEvents(verified), StreamPlace(seq, verified.digest)

    async def _verified(self, chain: StreamChain, event: EventFrame) -> VerifiedEnvelope | None:
        """The envelope; None for one that was seen before."""
        before = chain.end
        try:
            verified = await chain.verify(event.data)
        except EnvelopeRefused as refused:
            # Signed, and yet not the next one: one of those that were seen is a replay, and changes nothing.
            if refused.fault is EnvelopeFault.CHAIN and self._is_replay(event):
                return None
            raise
        envelope = verified.envelope
        # The id decides where the next connection begins: one that is not the envelope's own would skip others.
        if event.event_id != str(envelope.seq):
            chain.end = before
            raise EnvelopeRefused(EnvelopeFault.DECODE, "The event's id is not its envelope's number.")
        if not self._nonces.add(envelope.envelope_id):
            chain.end = before
            raise EnvelopeRefused(
                EnvelopeFault.NONCE, f"Envelope {envelope.seq} has an id that was seen before."
            )
        return verified

    def _is_replay(self, event: EventFrame) -> bool:
        from snavio.signed.stream_envelope import decoded

        seen = decoded(event.data).envelope_id
        return seen in self._nonces and not self._nonces.add(seen)

    async def _reset(self, place: StreamPlace | None, gone: StreamGone) -> StreamStatement:
        """The state to go on from; IntegrityError unless both statements are signed and say that the place is gone."""
        keys = await self._keys()
        told = verified_position(gone.position, tenant=self._tenant, keys=keys).position
        if place is None or place.seq >= told.low:
            raise IntegrityError(
                "The gateway says that the bookmark is gone, and signs that it is not.",
                reason="bad-statement",
            )
        state = verified_state(await self._gateway.get(f"{self._path}/state"), tenant=self._tenant, keys=keys)
        if place.seq >= state.position.high:
            raise IntegrityError("The state is older than the bookmark.", reason="bad-statement")
        return state


def _place_of(position: Position) -> StreamPlace:
    return StreamPlace(position.high, position.head)
