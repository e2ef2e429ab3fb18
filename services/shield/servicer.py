"""Shield on the wire: Greet, Submit, SubmitBatch and SubmitStream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from google.protobuf.message import DecodeError

from services.shield.admission import RETRY_AFTER_MS, AdmissionControl
from services.shield.refused_batch import MAX_BATCH_COMMANDS, read_batch, refused
from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Saturated, Unauthenticated
from snavio.hop.server_stream import WIRE_VERSIONS, BatchStream
from snavio.host.waiting_shares import WaitingShares
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.limits import MAX_FRAME_BYTES, PUBLIC_FRAME_BYTES
from snavio.rpc.server import Call, Methods
from snavio.v1.batch_pb2 import Hello, Limits, Verdicts
from snavio.v1.shield_pb2 import GreetRequest, SubmitRequest

MAX_BATCH_BYTES = PUBLIC_FRAME_BYTES
MAX_PAYLOAD_BYTES = 256 << 10
# For a unary caller to wait for room; after it, a full send queue refuses the batch.
ROOM_SECONDS = 4.0
# Time for which a unary call is served: the longest budget, and the wait for room before it. When a budget ends the
# caller gets a verdict; a deadline in its place would not say whether the command was delivered.
ANSWER_SECONDS = 65.0


class ShieldServicer:
    """Wire to decision and back."""

    def __init__(
        self,
        *,
        admission_control: AdmissionControl,
        gate: CertificateGate,
        clock: Clock,
        audience: str,
        window_ms: int,
        in_flight: int,
        bodies: WaitingShares,
    ) -> None:
        self._admission_control = admission_control
        self._gate = gate
        self._clock = clock
        self._audience = audience
        self._window_ms = window_ms
        self._in_flight = in_flight
        self._bodies = bodies

    def methods(self) -> Methods:
        """The handlers."""
        methods = Methods()
        methods.unary("/snavio.v1.Shield/Greet", self.greet, GreetRequest)
        most = MAX_FRAME_BYTES
        methods.unary_raw("/snavio.v1.Shield/Submit", self.submit, max_bytes=most)
        methods.unary_raw("/snavio.v1.Shield/SubmitBatch", self.submit_batch, max_bytes=most)
        methods.stream_raw("/snavio.v1.Shield/SubmitStream", self.submit_stream, max_bytes=most)
        return methods

    async def greet(self, request: GreetRequest, _call: Call) -> Hello:
        """Our identity and limits."""
        if request.wire_version not in WIRE_VERSIONS:
            raise BadRequest(
                f"Wire version {request.wire_version} is not spoken here.", reason="wire-version"
            )
        return self._hello()

    async def submit(self, request: bytes, call: Call) -> bytes:
        """One command; its verdict."""
        try:
            single = SubmitRequest.FromString(request)
        except DecodeError:
            raise BadRequest("The request is not a SubmitRequest.", reason="malformed") from None
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answer(frame: bytes, final: bool) -> None:
            if final and not answered.done():
                answered.set_result(frame)

        self._admission_control.admit_one(single.command, call.peer, single.budget_ms, answer)
        return await answered

    async def submit_batch(self, request: bytes, call: Call) -> bytes:
        """One batch; all of its verdicts in one answer."""
        frames: list[bytes] = []
        finished = asyncio.Event()

        def answer(frame: bytes, final: bool) -> None:
            frames.append(frame)
            if final:
                finished.set()

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROOM_SECONDS):
                await self._admission_control.room(call.peer.identity.source)
        self._admission_control.admit_batch(request, call.peer, answer)
        await finished.wait()
        return _joined(frames)

    async def submit_stream(self, call: Call) -> None:
        """Batches, answered in parts and in any order."""
        tenant = call.peer.identity.tenant
        stream = BatchStream(call, gate=self._gate, window=self._in_flight)
        await stream.greet(self._hello())
        try:
            # By source, so that those of one tenant take turns, too.
            room = partial(self._admission_control.room, call.peer.identity.source)
            async for frame in stream.batches(room=room, refusal=_refused_whole):
                answer: Callable[[bytes, bool], None] | None = stream.reply
                try:
                    answer = await self._held(frame, tenant, stream.reply)
                    if answer is not None:
                        self._admission_control.admit_batch(frame, call.peer, answer)
                except BadRequest:
                    # No answer to it will come; only earlier ones are waited for.
                    assert answer is not None
                    answer(b"", True)
                    raise
        finally:
            await stream.finish()

    async def _held(
        self, frame: bytes, tenant: str, reply: Callable[[bytes, bool], None]
    ) -> Callable[[bytes, bool], None] | None:
        """`reply`, which with the final answer returns the frame's bytes to its tenant's share.

        None where there was no room for the frame: it is answered then.
        """
        bodies = self._bodies
        try:
            held = await bodies.take(tenant, len(frame), within_s=ROOM_SECONDS)
        except Saturated as full:
            count, batch_seq = read_batch(frame)
            refusal = refused(
                count,
                Verdict.SATURATED,
                batch_seq=batch_seq,
                retry_after_ms=full.retry_after_ms,
                detail=str(full),
            )
            reply(refusal, True)
            return None

        def answer(verdicts: bytes, final: bool) -> None:
            if final:
                bodies.give_back(tenant, held)
            reply(verdicts, final)

        return answer

    def _hello(self) -> Hello:
        return Hello(
            wire_version=max(WIRE_VERSIONS),
            server_unix_ns=self._clock.unix_ns(),
            audience=self._audience,
            limits=Limits(
                max_batch_bytes=MAX_BATCH_BYTES,
                max_batch_commands=MAX_BATCH_COMMANDS,
                max_payload_bytes=MAX_PAYLOAD_BYTES,
                max_batches_in_flight=self._in_flight,
                window_ms=self._window_ms,
            ),
        )


def _refused_whole(frame: bytes, verdict: Verdict) -> bytes:
    """The answer to a batch of a peer whose certificate is not valid any more; nothing else of it is read."""
    try:
        count, batch_seq = read_batch(frame)
    except BadRequest:
        raise Unauthenticated(
            "The peer's certificate is not valid any more.", reason=verdict.reason
        ) from None
    if verdict is not Verdict.SATURATED:
        return refused(count, verdict, batch_seq=batch_seq)
    return refused(
        count,
        verdict,
        batch_seq=batch_seq,
        retry_after_ms=RETRY_AFTER_MS,
        detail="Which certificates were revoked cannot be known now.",
    )


def _joined(frames: list[bytes]) -> bytes:
    """Partial answers as one; each command is decided by exactly one of them."""
    if len(frames) == 1:
        return frames[0]
    parts = [Verdicts.FromString(frame) for frame in frames if frame]
    whole = Verdicts(batch_seq=parts[0].batch_seq, final=True)
    codes = 0
    for part in parts:
        # 0 where it does not decide, so they add up without a look at each.
        codes |= int.from_bytes(part.codes, "little") << (8 * part.first)
        # As they came: a reason that only a newer Fast knows is for a newer producer to read.
        whole.refusal.extend(part.refusal)
    length = max(part.first + len(part.codes) for part in parts)
    whole.codes = codes.to_bytes(length, "little")
    joined: bytes = whole.SerializeToString()
    return joined
