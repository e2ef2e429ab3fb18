"""Answers queries about recent commands of a process, for the tenants involved.

Never discloses to a tenant that a command of others exists: it is reported as not found. Never lets one caller keep it
busy, nor commands of others hide the caller's commands of the same id.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from itertools import islice
from typing import Final

from snavio.clock import Clock
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, Saturated, SnavioError
from snavio.rpc.call import Call
from snavio.rpc.certificate_refusals import CertificateRefusals
from snavio.rpc.channel import MeshChannel
from snavio.rpc.methods import Methods
from snavio.rpc.throttle import Rate, Rates
from snavio.telemetry.recent_commands import RecentCommands, rows_about
from snavio.telemetry.trace import trace_of
from snavio.v1.explain_pb2 import CertificateRefusal, ExplainRequest, ExplainResponse, Trace
from snavio.v1.registry_pb2 import ResolveKey, ResolveRequest, ResolveResponse

METHOD: Final = "/snavio.v1.Explain/Explain"
MAX_TRACES: Final = 10
MAX_ROWS: Final = 1000
"""Most rows examined for one id; a source that repeats an id so often hides only its own commands."""
EACH: Final = Rate(burst=20, per_s=5.0)
CALL_SECONDS: Final = 2.0


class ExplainServicer:
    """The `Explain` RPC of one process."""

    def __init__(
        self,
        recent: RecentCommands,
        *,
        instance: str,
        registry: MeshChannel,
        clock: Clock,
        trace_id: Callable[[str], str] = lambda _command: "",
        refusals: CertificateRefusals | None = None,
    ) -> None:
        self._refusals = refusals
        self._rates = Rates(EACH, clock=clock)
        self._recent = recent
        self._instance = instance
        self._registry = registry
        self._trace_id = trace_id

    def register(self, methods: Methods) -> None:
        """Serve the method."""
        methods.unary(METHOD, self.explain, ExplainRequest)

    async def explain(self, request: ExplainRequest, call: Call) -> ExplainResponse:
        """The recorded steps of the command, if it concerns the caller."""
        try:
            command_id = uuid.UUID(request.command_id).bytes
        except ValueError:
            raise BadRequest("command_id: must be a UUID.", reason="bad-field") from None
        reader = call.peer.identity
        if reader.tenant:
            wait_s = self._rates.take(reader.tenant)
            if wait_s:
                raise Saturated(
                    f"{reader.tenant} asks too often.", retry_after_ms=max(1, round(wait_s * 1000))
                )
        own, others = await asyncio.to_thread(self._look_up, self._recent.kept(), command_id, reader)
        for trace in others[: MAX_TRACES - len(own)]:
            if reader.tenant and await self._owner(trace) == reader.tenant:
                own.append(trace)
        told = sorted(own, key=_settled)
        if told:
            # Of its last pass: earlier ones are of the same trace, as the SDK sends it again.
            told[-1].trace_id = self._trace_id(str(uuid.UUID(bytes=command_id)))
        return ExplainResponse(
            instance=self._instance,
            trace=told,
            oldest_unix_ns=self._recent.oldest_unix_ns(),
            refused_certificate=[
                CertificateRefusal(
                    identity=one.identity.spiffe_id,
                    reason=one.reason,
                    count=one.count,
                    last_unix_ns=one.last_unix_ns,
                )
                for one in (self._refusals.recent(reader) if self._refusals is not None else ())
            ],
        )

    def _look_up(
        self, kept: tuple[bytes, ...], command_id: bytes, reader: Identity
    ) -> tuple[list[Trace], list[Trace]]:
        """The newest traces whose source is the reader's, and the newest of the others."""
        own: list[Trace] = []
        others: list[Trace] = []
        for sighting in islice(rows_about(kept, command_id), MAX_ROWS):
            trace = trace_of(sighting, instance=self._instance)
            if trace is None:
                continue
            concerns = reader.kind is IdentityKind.OPERATOR or trace.source.partition("/")[0] == reader.tenant
            (own if concerns else others).append(trace)
            if len(own) == MAX_TRACES:
                break
        return own, others

    async def _owner(self, trace: Trace) -> str:
        """The target's owner; empty when there is no such route, or Registry is away."""
        if not (trace.target and trace.name):
            return ""
        key = ResolveKey(source=trace.source, target=trace.target, name=trace.name)
        try:
            answer = await self._registry.call(
                "/snavio.v1.Registry/Resolve",
                ResolveRequest(key=[key]),
                ResolveResponse,
                timeout_s=CALL_SECONDS,
            )
        except SnavioError:
            return ""
        # Topics are derived from the owner and never free text.
        return answer.resolution[0].route.topic.partition("/")[0] if len(answer.resolution) == 1 else ""


def _settled(trace: Trace) -> int:
    settled: int = trace.settled_unix_ns
    return settled
