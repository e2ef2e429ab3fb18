"""Explain under a caller that asks too often, and under commands of others with the same id."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from snavio.clock import ManualClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.rpc.call import Call
from snavio.telemetry.explain_servicer import EACH, ExplainServicer
from snavio.telemetry.recent_commands import RecentCommands
from snavio.v1.explain_pb2 import ExplainRequest, ExplainResponse
from snavio.v1.telemetry_pb2 import TelemetryBlock

ID = UUID(int=7)


class NoRegistry:
    """Knows no route, so that only the source makes a command the caller's."""

    asked = 0

    async def call(self, *_given: object, **_named: object) -> Any:
        NoRegistry.asked += 1
        return SimpleNamespace(resolution=[])


def block(source: str, at: int) -> bytes:
    told: bytes = TelemetryBlock(
        command_id=ID.bytes,
        settled_unix_ns=at,
        dictionary=["", source, "target", "name"],
        service="shield",
        lanes=[TelemetryBlock.Lane(source=1, target=2, name=3)],
        runs=[TelemetryBlock.Run()],
        lane=[0],
        run=[0],
        verdict=bytes([Verdict.HMAC_MISMATCH]),
    ).SerializeToString()
    return told


def explaining(*blocks: bytes) -> tuple[ExplainServicer, ManualClock]:
    recent = RecentCommands(max_bytes=1 << 20)
    for each in blocks:
        recent.keep(each)
    clock = ManualClock()
    return ExplainServicer(recent, instance="shield-0", registry=cast(Any, NoRegistry()), clock=clock), clock


def caller(kind: IdentityKind, tenant: str = "", name: str = "ada") -> Call:
    identity = Identity(DEFAULT_TRUST_DOMAIN, kind, name, tenant)
    return cast(Call, SimpleNamespace(peer=SimpleNamespace(identity=identity)))


async def ask(explain: ExplainServicer, by: Call) -> ExplainResponse:
    return await explain.explain(ExplainRequest(command_id=str(ID)), by)


async def test_a_tenant_that_asks_too_often_waits_and_nobody_else() -> None:
    explain, clock = explaining()
    for number in range(EACH.burst):
        await ask(explain, caller(IdentityKind.SERVICE, "acme", f"service-{number}"))
    with pytest.raises(Saturated) as refused:
        await ask(explain, caller(IdentityKind.PRINCIPAL, "acme"))
    assert refused.value.retry_after_ms > 0
    await ask(explain, caller(IdentityKind.PRINCIPAL, "globex"))
    for _ in range(2 * EACH.burst):
        await ask(explain, caller(IdentityKind.OPERATOR))
    clock.advance(seconds=1)
    await ask(explain, caller(IdentityKind.PRINCIPAL, "acme"))


async def test_commands_of_others_with_the_same_id_hide_nothing_of_the_callers() -> None:
    explain, _ = explaining(block("acme/billing", 1), *(block("rival/flood", at) for at in range(2, 200)))
    told = await ask(explain, caller(IdentityKind.PRINCIPAL, "acme"))
    assert [trace.source for trace in told.trace] == ["acme/billing"]
    told = await ask(explain, caller(IdentityKind.OPERATOR))
    assert len(told.trace) == 10
