"""A real mesh: refused commands reach the tenant's webhook, its list and its state, and nobody else's."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
import pytest_asyncio
from standardwebhooks.webhooks import Webhook

from snavio.admin.alerts import AlertClient
from snavio.admin.directory import DirectoryClient
from snavio.domain.directory import AlertChannel, ChannelKind
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, NotAllowed, NotFound, Saturated
from snavio.native import read_verdicts
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.command_pb2 import Command
from snavio.v1.shield_pb2 import SubmitRequest
from tests.support.https import HttpsClient
from tests.support.mesh import TENANT, DemoMesh
from tests.support.terminal import ROOT, SNAVIO, environment
from tests.support.webhook_server import WebAuthority, WebhookServer

INVALID = "snavio.command.invalid"
PATIENCE_S = 60.0
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> WebAuthority:
    return WebAuthority.make(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def mesh_settings(web: WebAuthority) -> dict[str, dict[str, object]]:
    return {"relay": {"webhook_allow": "127.0.0.1/32", "webhook_ca_file": str(web.ca_file)}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def receiver(web: WebAuthority) -> AsyncIterator[WebhookServer]:
    async with WebhookServer.running(web) as server:
        yield server


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.create_tenant("evil")
        for tenant, name in ((TENANT, "ada"), ("evil", "eve")):
            identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, name, tenant)
            await operator.certify(identity, mesh.certificates(f"{tenant}-{name}"))


def client(mesh: DemoMesh, by: str) -> AlertClient:
    return AlertClient(mesh.addresses["relay"], certificates=mesh.certificates(by))


async def register(mesh: DemoMesh, channel: AlertChannel, *, by: str = "acme-ada") -> None:
    registry = DirectoryClient(mesh.addresses["registry"], certificates=mesh.certificates(by))
    async with registry:
        await registry.apply([channel])


async def refuse(mesh: DemoMesh, times: int, *, command: bytes = b"\xff") -> None:
    """Send what Shield refuses as invalid."""
    files = CertificateFiles.in_folder(mesh.certificates(f"{TENANT}-billing"))
    shield = MeshChannel(mesh.addresses["shield"], files=files, service="shield")
    try:
        for _ in range(times):
            answer = await shield.call_raw(
                "/snavio.v1.Shield/Submit",
                SubmitRequest(command=command, budget_ms=5000).SerializeToString(),
                timeout_s=10.0,
            )
            assert Verdict(read_verdicts(answer).codes[0]) in (Verdict.MALFORMED, Verdict.SOURCE_PRESENT)
    finally:
        await shield.close()


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.05)


async def snavio(mesh: DemoMesh, *words: str) -> subprocess.CompletedProcess[str]:
    config = mesh.processes.state_dir / "alerts-test.toml"
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


async def test_without_a_channel_a_refusal_is_on_the_operators_list(mesh: DemoMesh) -> None:
    # For a reason of its own: the alert of the next test is then the first of its group.
    await refuse(mesh, 1, command=Command(source="acme/shop").SerializeToString())
    async with client(mesh, "operator-admin") as operator, asyncio.timeout(PATIENCE_S):
        while not any(
            each.event == INVALID and each.tenant == TENANT
            for each in (await operator.alerts(unrouted=True)).alert
        ):
            await asyncio.sleep(0.1)
        assert any(
            each.event == "snavio.alert.unrouted" and each.sample["tenant"] == TENANT
            for each in (await operator.alerts()).alert
        )


async def test_a_refusal_reaches_the_webhook_that_the_tenant_registered(
    mesh: DemoMesh, receiver: WebhookServer, figure: Callable[[str], None]
) -> None:
    url = f"https://127.0.0.1:{receiver.port}/hook"
    await register(mesh, AlertChannel(TENANT, "oncall", ChannelKind.WEBHOOK, url, (INVALID,)))
    async with client(mesh, "acme-ada") as ada:
        async with asyncio.timeout(PATIENCE_S):
            while True:  # Until Relay has heard of the channel.
                try:
                    secret = (await ada.rotate_secret("oncall")).secret
                    break
                except NotFound:
                    await asyncio.sleep(0.1)
        tried = await ada.test("oncall")
        assert tried.delivered, tried.detail
    assert orjson.loads(receiver.received[-1].body)["type"] == "snavio.alert.test"
    before = len(receiver.received)
    began = time.monotonic()
    await refuse(mesh, 40)
    await until(lambda: len(receiver.received) > before)
    figure(f"from a refused command to its webhook: {time.monotonic() - began:.2f} s")
    request = receiver.received[-1]
    told = Webhook(secret).verify(request.body, request.headers)
    assert (told["data"]["tenant"], told["data"]["reason"]) == (TENANT, "malformed")


async def test_a_tenant_sees_its_own_alerts_and_nobody_elses(mesh: DemoMesh) -> None:
    async with client(mesh, "acme-ada") as ada, client(mesh, "evil-eve") as eve:
        own = (await ada.alerts()).alert
        assert own and {each.tenant for each in own} == {TENANT}
        assert list((await eve.alerts()).alert) == []
        with pytest.raises(NotAllowed):
            await eve.alerts(TENANT)
        for call in (eve.test("oncall", tenant=TENANT), eve.rotate_secret("oncall", tenant=TENANT)):
            with pytest.raises(NotAllowed):
                await call
        with pytest.raises(NotFound):
            await eve.test("oncall")
        assert await eve.ack([own[0].alert_id]) == 0
        assert await ada.ack([own[0].alert_id]) == 1
        with pytest.raises(BadRequest) as refused:
            await ada.mute(INVALID, until_unix_ns=time.time_ns() + 10**12)
        assert refused.value.reason == "critical-alert"
        with pytest.raises(BadRequest):
            await ada.mute("snavio.command.delivered", until_unix_ns=1)
        held = await ada.mute("snavio.route.health", until_unix_ns=time.time_ns() + 10**12)
        assert [each.event for each in held.mute] == ["snavio.route.health"]
        assert list((await ada.mute("snavio.route.health", until_unix_ns=1)).mute) == []


async def test_tests_of_channels_are_bounded(mesh: DemoMesh) -> None:
    await register(mesh, AlertChannel("evil", "own", ChannelKind.DASHBOARD), by="evil-eve")
    async with client(mesh, "evil-eve") as eve:
        with pytest.raises(Saturated) as refused:
            for _ in range(100):
                try:
                    await eve.test("own")
                except NotFound:
                    await asyncio.sleep(0.1)
        assert refused.value.reason == "too-many-tests"


async def test_the_gateway_shows_a_tenants_alerts_and_its_state_has_the_open_ones(mesh: DemoMesh) -> None:
    ca = mesh.certificates("acme-ada") / "ca.pem"
    ada = HttpsClient(mesh.processes.mesh.https, ca=ca, folder=mesh.certificates("acme-ada"))
    eve = HttpsClient(mesh.processes.mesh.https, ca=ca, folder=mesh.certificates("evil-eve"))
    shown = await ada.get(f"/v1/tenants/{TENANT}/alerts?open=true")
    assert shown.status == 200
    alerts = shown.document["alerts"]
    assert alerts and all(not each["acknowledged"] for each in alerts)
    assert (await eve.get(f"/v1/tenants/{TENANT}/alerts")).status == 403
    assert (await eve.get("/v1/tenants/evil/alerts")).document["alerts"] == []
    state = (await ada.get(f"/v1/tenants/{TENANT}/state")).document
    assert {each["alert_id"] for each in state["alerts"]} == {each["alert_id"] for each in alerts}
    assert state["signature"]


async def test_the_command_line_shows_acknowledges_and_explains(mesh: DemoMesh) -> None:
    listed = await snavio(mesh, "alerts", "ls", "--tenant", TENANT, "--json")
    assert listed.returncode == 0, listed.stderr
    rows = orjson.loads(listed.stdout)["alerts"]
    delivered = next(row for row in rows if row["state"] == "delivered")
    assert delivered["channels"][0] == {
        "channel": "oncall",
        "state": "delivered",
        "attempts": 1,
        "error": None,
    }
    unseen = next(row for row in rows if not row["acked_by"])
    acked = await snavio(mesh, "alerts", "ack", unseen["alert_id"], "--json")
    assert orjson.loads(acked.stdout) == {"acked": 1}
    for words, reason in (
        (("mute", INVALID, "--until", "2h"), "cannot be switched off"),
        (("test", "nobody", "--tenant", TENANT), "known are: oncall"),
        (("mute", INVALID), "--until"),
        (("secret", "nobody"), "The operators have no channel"),
    ):
        refused = await snavio(mesh, "alerts", *words)
        assert refused.returncode in (1, 2) and reason in refused.stderr, refused
        assert "Traceback" not in refused.stderr
