"""A real mesh: the steps of a command, shown to its owner; and the freeze, effective mid-stream."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from snavio.admin.explain import Explanation, explain
from snavio.admin.freeze import FrozenSubject, KillSwitch
from snavio.clock import SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, NotFound
from tests.support.mesh import NAME, SOURCE, TARGET, TOPIC, DemoMesh
from tests.support.terminal import snavio

OPERATOR = "operator-admin"
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.put_route(TARGET, "forbidden")
        await operator.create_tenant("evil")
        for tenant, kind, name in (
            ("evil", IdentityKind.PRINCIPAL, "eve"),
            ("acme", IdentityKind.PRINCIPAL, "ada"),
        ):
            identity = Identity(DEFAULT_TRUST_DOMAIN, kind, name, tenant)
            await operator.certify(identity, mesh.certificates(f"{tenant}-{name}"))


async def told(mesh: DemoMesh, command_id: str, *, by: str = OPERATOR) -> Explanation:
    return await explain(command_id, addresses=mesh.addresses, certificates=mesh.certificates(by))


def steps(explanation: Explanation) -> dict[str, int]:
    assert explanation.trace is not None
    return {step.step: step.state for step in explanation.trace.step}


async def sent(mesh: DemoMesh, name: str = NAME) -> tuple[str, Verdict]:
    async with mesh.producer() as producer:
        outcome = await producer.send(TARGET, name, b"{}")
    return outcome.command_id, outcome.verdict


async def warm(mesh: DemoMesh) -> None:
    """Wait until Fast knows the route."""
    for _ in range(100):
        command_id, verdict = await sent(mesh)
        assert verdict is Verdict.DELIVERED
        trace = (await told(mesh, command_id)).trace
        if trace is not None and trace.path == "fast":
            return
    pytest.fail("never dispatched by Fast")


async def test_a_delivered_command_is_told_step_by_step_in_order(mesh: DemoMesh) -> None:
    await warm(mesh)
    command_id, _ = await sent(mesh)
    explanation = await told(mesh, command_id)
    trace = explanation.trace
    assert trace is not None
    assert (trace.path, trace.source, trace.target, trace.name) == ("fast", SOURCE, TARGET, NAME)
    assert [step.step for step in trace.step] == [
        "schema", "window", "key", "acl", "bans", "grant", "dedupe", "route", "queue", "attempts",
    ]  # fmt: skip
    assert set(steps(explanation).values()) == {1}
    facts = {step.step: dict(step.fact) for step in trace.step}
    assert facts["key"]["version"] == "hmac-v1"
    assert facts["acl"]["phase"] == "fresh"
    assert int(facts["acl"]["version"]) > 0
    assert int(facts["acl"]["age_ms"]) >= 0
    assert facts["grant"] == {"kind": "unlimited"}
    assert facts["route"] == {"topic": TOPIC}
    assert facts["attempts"]["state"] == "ready"


async def test_a_refused_command_stops_where_it_was_refused(mesh: DemoMesh) -> None:
    command_id, verdict = await sent(mesh, "forbidden")
    assert verdict is Verdict.ACL_DENY
    explanation = await told(mesh, command_id)
    assert explanation.trace is not None
    assert (explanation.trace.path, explanation.trace.verdict) == ("slow", "acl-deny")
    state = steps(explanation)
    assert (state["key"], state["acl"], state["grant"], state["queue"]) == (1, 2, 4, 4)


async def test_a_tenant_is_told_of_its_own_commands_and_of_no_others(mesh: DemoMesh) -> None:
    for name in (NAME, "forbidden"):
        command_id, _ = await sent(mesh, name)
        for by in ("acme-ada", "acme-billing", "acme-bot"):
            assert (await told(mesh, command_id, by=by)).trace is not None, by
        stranger = await told(mesh, command_id, by="evil-eve")
        assert stranger.trace is None
        assert stranger.away == ()


async def test_the_owner_of_a_target_is_told_of_strangers_commands_to_it(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.register_service("evil", "bot")
        identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, "bot", "evil")
        await operator.certify(identity, mesh.certificates("acme-evil"))
    async with mesh.producer("evil") as producer:
        outcome = await producer.send(TARGET, NAME, b"{}")
    assert outcome.verdict is Verdict.ACL_DENY
    for by, knows in (("acme-ada", True), ("evil-eve", True), (OPERATOR, True)):
        found = await told(mesh, outcome.command_id, by=by)
        assert (found.trace is not None) is knows, by
    # For a target without an owner, only the sender.
    async with mesh.producer("evil") as producer:
        outcome = await producer.send("nowhere", NAME, b"{}")
    assert (await told(mesh, outcome.command_id, by="acme-ada")).trace is None
    assert (await told(mesh, outcome.command_id, by="evil-eve")).trace is not None


async def test_an_unknown_command_says_how_long_commands_are_kept(mesh: DemoMesh) -> None:
    await sent(mesh)
    found = await told(mesh, str(uuid.uuid4()))
    assert found.trace is None
    assert found.oldest_unix_ns["fast"] > 0
    with pytest.raises(BadRequest, match="UUID"):
        await told(mesh, "no id at all")


async def test_the_command_line_tells_the_same_json(mesh: DemoMesh, tmp_path: Path) -> None:
    command_id, _ = await sent(mesh)
    config = mesh.processes.config
    words = ("explain", command_id, "--config", str(config), "--json")
    ran = await asyncio.to_thread(snavio, *words, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    document = orjson.loads(ran.stdout)
    # The archive is asked only about commands that no service remembers any more.
    assert document.pop("archived") == []
    assert document == orjson.loads(orjson.dumps((await told(mesh, command_id)).document()))
    missing = await asyncio.to_thread(
        snavio, "explain", str(uuid.uuid4()), "--config", str(config), folder=tmp_path
    )
    assert missing.returncode == 1
    assert "keeps the commands of the last" in missing.stdout


def switch(mesh: DemoMesh) -> KillSwitch:
    return KillSwitch(
        mesh.addresses["registry"], certificates=mesh.certificates(OPERATOR), clock=SystemClock()
    )


@pytest.mark.parametrize(
    ("subject", "verdict", "bound_s", "instances"),
    [
        (FrozenSubject(target=TARGET), Verdict.FROZEN, 120.0, {"fast-0", "slow-0"}),
        (FrozenSubject(target=TARGET, name=NAME), Verdict.FROZEN, 120.0, {"fast-0", "slow-0"}),
        (FrozenSubject(source=SOURCE), Verdict.SUSPENDED, None, {"shield-0", "slow-0"}),
    ],
    ids=["target", "command", "source"],
)
async def test_a_freeze_is_felt_mid_stream_by_the_time_that_everybody_has_acknowledged(
    mesh: DemoMesh, subject: FrozenSubject, verdict: Verdict, bound_s: float | None, instances: set[str]
) -> None:
    await warm(mesh)
    async with switch(mesh) as kill, mesh.producer() as producer:
        stream = await producer.send_batch([(TARGET, NAME, b"{}")] * 20)
        assert stream.delivered == 20
        order = await kill.order(subject, frozen=True, reason="drill")
        assert order.bound_s == (bound_s or order.bound_s)
        acks = [ack async for ack in kill.acknowledgements(order, within_s=20)]
        assert {ack.instance for ack in acks} == instances
        assert all(ack.obeys for ack in acks)
        outcome = await producer.send(TARGET, NAME, b"{}")
        assert outcome.verdict is verdict
        again = await kill.order(subject, frozen=True, reason="drill")
        assert not again.changed
        order = await kill.order(subject, frozen=False, reason="drill over")
        assert all([ack.obeys async for ack in kill.acknowledgements(order, within_s=20)])
        assert (await producer.send(TARGET, NAME, b"{}")).delivered


async def test_an_instance_that_gives_no_word_is_named(mesh: DemoMesh) -> None:
    async with switch(mesh) as kill:
        order = await kill.order(FrozenSubject(target=TARGET, name=NAME), frozen=False)
        unheard = replace(order, version=order.version + 1_000_000)
        acks = {ack.instance: ack async for ack in kill.acknowledgements(unheard, within_s=0.1)}
        assert set(acks) == {"fast-0", "slow-0"}
        for ack in acks.values():
            assert not ack.obeys
            assert "the order is" in ack.detail


async def test_what_does_not_exist_cannot_be_frozen(mesh: DemoMesh) -> None:
    async with switch(mesh) as kill:
        for subject in (
            FrozenSubject(target="nowhere"),
            FrozenSubject(target=TARGET, name="nothing"),
            FrozenSubject("a/b"),
        ):
            with pytest.raises(NotFound):
                await kill.order(subject, frozen=True)
    for what, command in (("acme/billing", "x"), ("Bad Target", ""), ("bot", "a b")):
        with pytest.raises(BadRequest):
            FrozenSubject.read(what, command)


async def test_the_command_line_freezes_and_shows_who_obeys(mesh: DemoMesh, tmp_path: Path) -> None:
    at = ("--config", str(mesh.processes.config), "--json")
    frozen = await asyncio.to_thread(snavio, "freeze", TARGET, NAME, *at, folder=tmp_path)
    assert frozen.returncode == 0, frozen.stderr
    document = orjson.loads(frozen.stdout)
    assert {ack["instance"]: ack["obeys"] for ack in document["acknowledgements"]} == {
        "fast-0": True,
        "slow-0": True,
    }
    assert document["bound_s"] == 120.0
    async with mesh.producer() as producer:
        outcome = await producer.send(TARGET, NAME, b"{}")
    assert outcome.verdict is Verdict.FROZEN
    assert "Frozen" in outcome.detail
    ran = await asyncio.to_thread(snavio, "unfreeze", TARGET, NAME, *at, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
