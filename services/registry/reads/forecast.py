"""Forecasts the decision about a command from the directory, from Signer's answer about keys, and from Slow's about
permits and queues.

Never sends anything, and never fails because one of them is away: its gates are then unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.registry.reads.live_gates import LiveGates, clock_gate, slow_gates
from services.registry.reads.preflight import Facts, KeyStanding, gates, sight_of
from services.registry.signer.signer_calls import SignerCalls
from snavio.clock import Clock
from snavio.domain.identity import Identity
from snavio.domain.verdict import Verdict
from snavio.v1 import registry_pb2 as wire


@dataclass(frozen=True, slots=True)
class Forecast:
    """Answers for one reader at a time."""

    trust: SignerCalls
    live: LiveGates
    clock: Clock

    async def of(
        self,
        facts: Facts,
        *,
        reader: Identity,
        version: int,
        provided: frozenset[str] = frozenset(),
        caller_unix_ns: int = 0,
        command_id: str = "",
    ) -> wire.CheckResponse:
        """The decision; NotAllowed for a reader whom the command does not concern. `provided` surely have keys."""
        now = self.clock.unix_ns()
        sight = sight_of(reader, facts)
        reports = list(gates(facts, sight, keys=await self._keys(facts, provided)))
        reports += clock_gate(caller_unix_ns, now)
        if all(report.verdict is Verdict.DELIVERED for report in reports):
            # A command that is refused before would never get there.
            reports += slow_gates(await self.live.forecast(facts, command_id=command_id), facts, sight)
        failing = next((report for report in reports if report.verdict is not Verdict.DELIVERED), None)
        return wire.CheckResponse(
            version=version,
            passes=failing is None,
            failing_gate=failing.gate if failing is not None else "",
            verdict=(failing.verdict if failing is not None else Verdict.DELIVERED).reason,
            gate=[
                wire.GateReport(
                    gate=report.gate,
                    state=f"GATE_STATE_{report.state.name}",
                    detail=report.detail,
                    advice=report.advice,
                )
                for report in reports
            ],
            acl_version=facts.acl_version,
        )

    async def _keys(self, facts: Facts, provided: frozenset[str]) -> KeyStanding | None:
        if facts.source in provided:
            return KeyStanding(known=True)
        # A source that is not registered has no keys; Signer need not be asked about strangers' words.
        return await self.trust.key_state(facts.source) if facts.service is not None else KeyStanding()
