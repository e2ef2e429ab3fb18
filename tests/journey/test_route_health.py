"""A real mesh: a queue that nobody receives from is noticed, told to its owner, and well again once somebody comes."""

from __future__ import annotations

import asyncio
import subprocess

import orjson
import pytest

from snavio.admin.alerts import AlertClient
from snavio.admin.directory import DirectoryClient
from snavio.clock import SystemClock
from snavio.domain.directory import AlertChannel, ChannelKind, Route
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.errors import BadRequest, NotAllowed
from snavio.rpc.capability import CapabilityProvider
from snavio.rpc.capability_request import watcher
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.telemetry import schema
from snavio.v1.mailbox_pb2 import StatsRequest, StatsResponse
from snavio.v1.registry_pb2 import RouteHealth
from tests.support.archived import fields, found
from tests.support.https import HttpsClient
from tests.support.mesh import NAME, TARGET, TENANT, TOPIC, DemoMesh
from tests.support.terminal import ROOT, SNAVIO, environment

PATIENCE_S = 60.0
SETTINGS: dict[str, dict[str, object]] = {
    "registry": {"route_look_s": 0.2},
    "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
}
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.create_tenant("evil")
        for tenant, name in ((TENANT, "ada"), ("evil", "eve")):
            identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, name, tenant)
            await operator.certify(identity, mesh.certificates(f"{tenant}-{name}"))
    async with client(mesh, "acme-ada") as ada:
        route = Route(TARGET, NAME, expected_drain_seconds=1)
        await ada.apply([AlertChannel(TENANT, "board", ChannelKind.DASHBOARD), route])


def client(mesh: DemoMesh, by: str) -> DirectoryClient:
    return DirectoryClient(mesh.addresses["registry"], certificates=mesh.certificates(by))


async def health(mesh: DemoMesh, wanted: str, *, by: str = "acme-ada") -> RouteHealth:
    async with client(mesh, by) as directory, asyncio.timeout(PATIENCE_S):
        while True:
            routes = await directory.route_health(target=TARGET)
            if routes and routes[0].status == wanted:
                return routes[0]
            await asyncio.sleep(0.1)


async def snavio(mesh: DemoMesh, *words: str) -> subprocess.CompletedProcess[str]:
    config = mesh.processes.state_dir / "routes-test.toml"
    lines = [f'{name} = "{address}"' for name, address in mesh.addresses.items()]
    config.write_text("\n".join(["[mesh]", *lines, ""]))
    return await asyncio.to_thread(
        subprocess.run,
        [*SNAVIO, *words, "--config", str(config), "--state-dir", str(mesh.processes.state_dir)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(),
        check=False,
    )


async def test_a_queue_that_nobody_receives_from_is_unpolled_with_the_evidence(mesh: DemoMesh) -> None:
    await health(mesh, "healthy")
    async with mesh.producer() as producer:
        outcomes = [await producer.send(TARGET, NAME, b"{}") for _ in range(3)]
    assert all(outcome.delivered for outcome in outcomes)
    told = await health(mesh, "unpolled")
    assert (told.tenant, told.topic, list(told.name), told.depth) == (TENANT, TOPIC, [NAME], 3)
    assert "nobody received any" in told.evidence[0]
    async with client(mesh, "evil-eve") as eve:
        assert await eve.route_health() == []
        assert await eve.route_health(target=TARGET) == []
        with pytest.raises(NotAllowed):
            await eve.route_health(tenant=TENANT)


async def test_it_is_an_event_in_the_archive_and_an_alert_of_its_owner(mesh: DemoMesh) -> None:
    rows = await found(mesh, f"event = '{schema.ROUTE_HEALTH}' AND reason = 'unpolled'")
    assert fields(rows[0])["target"] == TARGET
    async with (
        AlertClient(mesh.addresses["relay"], certificates=mesh.certificates("acme-ada")) as ada,
        asyncio.timeout(PATIENCE_S),
    ):
        while not any(
            (each.event, each.reason, each.state) == (schema.ROUTE_HEALTH, "unpolled", "delivered")
            for each in (await ada.alerts()).alert
        ):
            await asyncio.sleep(0.1)


async def test_the_command_line_and_the_signed_state_say_so(mesh: DemoMesh) -> None:
    listed = await snavio(mesh, "routes", "ls", "--unhealthy", "--json")
    (row,) = orjson.loads(listed.stdout)["routes"]
    assert (row["target"], row["queue"], row["status"], row["receiver"]) == (
        TARGET,
        "mailbox",
        "unpolled",
        None,
    )
    shown = await snavio(mesh, "routes", "show", TARGET)
    assert shown.returncode == 1 and "nobody received any" in shown.stdout
    tried = await snavio(mesh, "try", f"{TENANT}/billing", TARGET, NAME)
    assert tried.returncode == 0 and "unpolled: 3 messages" in tried.stdout, tried
    missing = await snavio(mesh, "routes", "show", "no-such-target")
    assert missing.returncode == 1 and "Traceback" not in missing.stderr
    web = HttpsClient(
        mesh.processes.mesh.https,
        ca=mesh.certificates("acme-ada") / "ca.pem",
        folder=mesh.certificates("acme-ada"),
    )
    state = (await web.get(f"/v1/tenants/{TENANT}/state")).document
    (route,) = [each for each in state["routes"] if each["target"] == TARGET]
    assert route["status"] == "unpolled"
    (keys,) = [each for each in state["keys"] if each["source"] == f"{TENANT}/billing"]
    assert keys["primary"] in {each["version_id"] for each in keys["versions"]}
    assert state["restrictions"] == {"suspensions": [], "bans": []}
    assert sorted(state)[-2:] == ["signature", "type"]


async def test_it_is_well_again_once_somebody_comes_and_says_who(mesh: DemoMesh) -> None:
    async with mesh.consumer() as consumer, asyncio.timeout(PATIENCE_S):
        for _ in range(3):
            delivery = await anext(aiter(consumer))
            await delivery.ack()
    told = await health(mesh, "healthy")
    assert told.last_receiver.endswith("/tenant/acme/service/bot") and told.last_received_unix_ns


async def test_counts_of_a_thousand_topics_come_in_one_call_and_more_are_refused(mesh: DemoMesh) -> None:
    channel = MeshChannel(
        mesh.addresses["mailbox"],
        files=CertificateFiles.in_folder(mesh.certificates("registry")),
        service="mailbox",
        capability_provider=_watching(mesh),
    )
    try:
        asked = [TOPIC, *(f"acme/none-{at}" for at in range(999))]
        method = "/snavio.v1.Mailbox/Stats"
        told = await channel.call(method, StatsRequest(topics=asked), StatsResponse, timeout_s=10)
        assert [each.topic for each in told.topic] == [TOPIC]
        with pytest.raises(BadRequest):
            await channel.call(method, StatsRequest(topics=[*asked, "a/b"]), StatsResponse, timeout_s=10)
    finally:
        await channel.close()


def _watching(mesh: DemoMesh) -> CapabilityProvider:
    return watcher(
        mesh.addresses["signer"],
        files=CertificateFiles.in_folder(mesh.certificates("registry")),
        trust_domain=DEFAULT_TRUST_DOMAIN,
        clock=SystemClock(),
    )
