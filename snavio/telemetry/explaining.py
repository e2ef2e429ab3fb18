"""Answers what a process still knows of a command, to those whose command it is.

Never tells a tenant that a command of others exists: what is not its affair is not found.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from snavio.domain.identity import Identity, Kind
from snavio.errors import BadRequest, SnavioError
from snavio.telemetry.recent import RecentCommands, sightings
from snavio.telemetry.trace import trace_of
from snavio.transport.call import Call
from snavio.transport.channel import MeshChannel
from snavio.transport.methods import Methods
from snavio.v1.explain_pb2 import ExplainRequest, ExplainResponse, Trace
from snavio.v1.registry_pb2 import ResolveKey, ResolveRequest, ResolveResponse

METHOD: Final = "/snavio.v1.Explain/Explain"
MAX_TRACES: Final = 10
CALL_SECONDS: Final = 2.0


class Explaining:
    """One process's `Explain`."""

    def __init__(self, recent: RecentCommands, *, instance: str, registry: MeshChannel) -> None:
        self._recent = recent
        self._instance = instance
        self._registry = registry

    def register(self, methods: Methods) -> None:
        """Serve it."""
        methods.unary(METHOD, self.explain, ExplainRequest)

    async def explain(self, request: ExplainRequest, call: Call) -> ExplainResponse:
        """What is known of the command, as far as it is the caller's affair."""
        try:
            command_id = uuid.UUID(request.command_id).bytes
        except ValueError:
            raise BadRequest("command_id: must be a UUID.", reason="bad-field") from None
        # Off the loop: a full ring takes milliseconds to read.
        found = await asyncio.to_thread(sightings, self._recent.kept(), command_id, limit=MAX_TRACES)
        told = [trace_of(sighting, instance=self._instance) for sighting in found]
        traces = [trace for trace in told if trace is not None]
        return ExplainResponse(
            instance=self._instance,
            trace=[trace for trace in traces if await self._concerns(call.peer.identity, trace)],
            oldest_unix_ns=self._recent.oldest_unix_ns(),
        )

    async def _concerns(self, reader: Identity, trace: Trace) -> bool:
        if reader.kind is Kind.OPERATOR:
            return True
        if not reader.tenant:
            return False
        if trace.source.partition("/")[0] == reader.tenant:
            return True
        return await self._owner(trace) == reader.tenant

    async def _owner(self, trace: Trace) -> str:
        """The target's owner; empty when there is no such route, or Registry cannot be asked."""
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
