"""Every opening of a stream is on record, and every envelope that was not believed; without a record none begins."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path

import pytest

from snavio.clock import SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.ports.tenant_streams import StreamEntry
from snavio.sdk import EventStream, ReceivedEvents
from snavio.telemetry import schema
from snavio.wiring import open_tenant_streams
from tests.support.archived import PATIENCE_S, fields, found, in_archive
from tests.support.envelopes import ISSUED_NS, EnvelopeMaker
from tests.support.https import HttpsClient
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh
from tests.support.terminal import snavio

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS: dict[str, dict[str, object]] = {
    "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
    "gateway": {"audit_within_s": 1.0},
}
EVENTS = "/v1/tenants/acme/events"


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.create_tenant("globex")
        for tenant in ("acme", "globex"):
            identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, "ci", tenant)
            await operator.certify(identity, mesh.certificates(f"{tenant}-ci"))
    async with asyncio.timeout(PATIENCE_S):
        # The gateway hears of a new tenant with its next pull.
        while b"unknown-tenant" in (await client(mesh).get("/v1/tenants/acme/state")).body:
            await asyncio.sleep(0.05)


def client(mesh: DemoMesh) -> HttpsClient:
    ca = mesh.certificates("gateway") / "ca.pem"
    return HttpsClient(mesh.processes.mesh.https, ca=ca, folder=mesh.certificates("acme-ci"))


def stream(mesh: DemoMesh) -> EventStream:
    return EventStream(
        gateway=mesh.processes.mesh.https,
        signer=mesh.addresses["signer"],
        tenant="acme",
        certificates=mesh.certificates("acme-ci"),
    )


async def test_who_opened_a_stream_is_on_record(mesh: DemoMesh) -> None:
    assert (await client(mesh).get(f"{EVENTS}?source={SOURCE}")).status == 200
    (row,) = await found(mesh, f"event = '{schema.STREAM_OPENED}'")
    told = fields(row)
    assert told["tenant"] == "acme"
    assert told["detail"].startswith("spiffe://snavio.local/tenant/acme/principal/ci, serial ")
    assert told["detail"].endswith(f", source={SOURCE}")


async def test_a_reader_follows_a_command_from_the_send_to_its_event(mesh: DemoMesh) -> None:
    async with stream(mesh) as events, asyncio.timeout(PATIENCE_S):
        items = events.__aiter__()
        reading = asyncio.ensure_future(anext(items))
        async with mesh.producer() as producer:
            sent = set()
            while not reading.done():
                sent.add((await producer.send(TARGET, NAME, b"x")).command_id)
                await asyncio.wait({reading}, timeout=0.5)
        received = reading.result()
        assert isinstance(received, ReceivedEvents)
        assert {event["command_id"] for event in received.events} <= sent
        assert received.source == SOURCE


async def test_an_envelope_that_was_forged_in_the_store_reaches_nobody(mesh: DemoMesh) -> None:
    state = json.loads((await client(mesh).get("/v1/tenants/acme/state")).body)
    before = state["position"]
    await asyncio.to_thread(mesh.processes.kill, "relay")
    store = await open_tenant_streams(
        mesh.processes.mesh.state_dir / "relay" / "streams.db", clock=SystemClock()
    )
    try:
        window = await store.window("acme")
        forger = EnvelopeMaker(epoch=window.epoch, seq=window.high, prev=window.head, key_id=state["key_id"])
        body = forger.next()
        entry = StreamEntry(
            seq=forger.seq,
            envelope_id="forged",
            source=SOURCE,
            family="command",
            events=1,
            issued_unix_ns=ISSUED_NS,
            digest=forger.prev,
            body=body,
        )
        await store.append("acme", expected=window, fence=time.time_ns(), drafts=[], entries=[entry])
    finally:
        await store.close()
    mesh.processes.restart("relay")
    request = (
        f"GET {EVENTS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nlast-event-id: {before['high']}\r\n\r\n"
    )
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await client(mesh).raw(
                request.encode(),
                within_s=PATIENCE_S,
            )
            # While Relay starts, nobody is told where a stream stands.
            if answer.startswith(b"HTTP/1.1 200"):
                break
            assert answer.startswith(b"HTTP/1.1 503"), answer[:200]
            await asyncio.sleep(0.2)
    # The stream ended before it.
    assert b"forged" not in answer and str(forger.seq).encode() not in answer
    rows = await found(mesh, f"event = '{schema.STREAM_VERIFICATION_FAILED}'")
    told = fields(rows[0])
    assert (told["tenant"], told["reason"]) == ("acme", "bad_signature")
    counters = await mesh.counters("gateway")
    assert counters['sse_envelope_verification_failures_total{outcome="bad_signature"}'] >= 1


async def test_without_relay_no_stream_begins(mesh: DemoMesh) -> None:
    await asyncio.to_thread(mesh.processes.kill, "relay")
    try:
        answer = await client(mesh).get(EVENTS)
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
    finally:
        mesh.processes.restart("relay")


async def test_explain_finds_in_the_archive_what_no_process_remembers(mesh: DemoMesh, tmp_path: Path) -> None:
    async with mesh.producer() as producer:
        sent = [(await producer.send(TARGET, name, b"x")).command_id for name in (NAME, "nothing-such")]
    for command_id in sent:
        await found(mesh, in_archive(command_id))
    for service in ("shield", "fast", "slow"):
        await asyncio.to_thread(mesh.processes.kill, service)
        mesh.processes.restart(service)
    at = ("--config", str(mesh.processes.config))

    async def explained(command_id: str, *more: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(snavio, "explain", command_id, *at, *more, folder=tmp_path)

    delivered = await explained(sent[0])
    assert delivered.returncode == 0, delivered.stderr
    assert "snavio.command.delivered" in delivered.stdout and "in the archive, signed" in delivered.stdout
    told = json.loads((await explained(sent[1], "--json")).stdout)
    assert (told["found"], told["trace"]) == (False, None)
    (event,) = told["archived"]
    assert (event["event"], event["source"], event["reason"]) == (
        "snavio.command.failed",
        SOURCE,
        "route-missing",
    )
    # Its own tenant sees it, another one hears of nothing.
    own = await explained(sent[0], "--as", str(mesh.certificates("acme-ci")))
    assert own.returncode == 0, own.stderr
    stranger = await explained(sent[0], "--as", str(mesh.certificates("globex-ci")))
    assert stranger.returncode == 1 and "snavio.command" not in stranger.stdout
    unknown = await explained("0190b5c2-8f6e-7cc1-9d3e-2b8c1e5a7f10")
    assert unknown.returncode == 1 and "No service knows this command" in unknown.stdout
