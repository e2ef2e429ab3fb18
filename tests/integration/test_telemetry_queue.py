"""A tenant's queue of envelopes on a whole mesh: what the stream has is there too, under the same ids, and once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from snavio.admin.relay import STATUS
from snavio.cli.app import app
from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, NotAllowed
from snavio.ports.tenant_streams import StreamEntry
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk import Consumer
from snavio.signed.stream_envelope import chained_digest, decoded, envelope_verified, signed_form
from snavio.signed.verification import VerifyingKey
from snavio.telemetry import schema
from snavio.v1 import relay_pb2 as wire
from snavio.v1 import signer_pb2
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from snavio.wiring import open_tenant_streams
from tests.support.archived import PATIENCE_S, fields, found
from tests.support.mesh import NAME, SOURCE, TARGET, TENANT, DemoMesh

SETTINGS: dict[str, dict[str, object]] = {"relay": {"export_after_s": 0.3, "export_few_after_s": 0.3}}
QUEUE = f"{TENANT}/snavio.telemetry"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.1)


async def called(mesh: DemoMesh, service: str, method: str, request: Any, answer: Any, *, by: str) -> Any:
    channel = MeshChannel(
        mesh.addresses[service], files=CertificateFiles.in_folder(mesh.certificates(by)), service=service
    )
    try:
        return await channel.call(
            f"/snavio.v1.{service.capitalize()}/{method}", request, answer, timeout_s=PATIENCE_S
        )
    finally:
        await channel.close()


async def received(consumer: Consumer, events: int) -> list[dict[str, Any]]:
    """Envelopes with so many events of commands, in the order of their numbers."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        async for message in consumer:
            found.append(orjson.loads(message.payload))
            assert message.attrs["source"] == found[-1]["payload"]["source"]
            failures = [
                event
                for event in found[-1]["payload"]["events"]
                if event["event"] in (schema.FAILED, schema.INVALID)
            ]
            assert message.attrs["failures"] == str(len(failures))
            await message.ack()
            delivered = [
                event
                for envelope in found
                for event in envelope["payload"]["events"]
                if event["event"] == schema.DELIVERED
            ]
            if len(delivered) >= events:
                break
    return sorted(found, key=lambda envelope: int(envelope["seq"]))


async def test_a_tenant_receives_its_envelopes_and_verifies_them(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer:
        await producer.send(TARGET, "nothing-such", b"x")
        outcomes = await producer.send_batch([(TARGET, NAME, b"x")] * 20, timeout_s=20)
    assert {outcome.verdict for outcome in outcomes} == {Verdict.DELIVERED}
    async with mesh.consumer(topic=QUEUE) as consumer:
        envelopes = await received(consumer, 20)
    keys = await called(
        mesh,
        "signer",
        "GetPublicKeys",
        signer_pb2.GetPublicKeysRequest(scope=f"tenant:{TENANT}"),
        signer_pb2.PublicKeys,
        by=f"{TENANT}-bot",
    )
    known = [VerifyingKey(key.key_id, key.public_key, key.valid_from_unix_ns) for key in keys.key]
    prev = None
    for document in envelopes:
        envelope = decoded(orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
        form = signed_form(envelope)
        assert envelope_verified(envelope, form, known)
        assert prev in (None, envelope.prev)
        prev = chained_digest(form)
    ids = {
        event["command_id"]
        for document in envelopes
        for event in document["payload"]["events"]
        if event["event"] == schema.DELIVERED
    }
    assert ids == {outcome.command_id for outcome in outcomes}
    assert {document["payload"]["source"] for document in envelopes} >= {SOURCE}


async def test_envelopes_that_are_sent_again_are_known_by_their_ids(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer:
        await producer.send_batch([(TARGET, NAME, b"x")] * 3, timeout_s=20)

    async def all_sent() -> bool:
        counts = await mesh.counters("relay")
        return counts["queues.sent"] >= counts["sealing.envelopes"] > 0

    await eventually(all_sent)
    before = await mesh.counters("relay")
    answer = await called(
        mesh,
        "relay",
        "ReEmit",
        wire.ReEmitRequest(tenant=TENANT),
        wire.ReEmitResponse,
        by="operator-admin",
    )
    assert answer.envelopes >= 1

    async def known() -> bool:
        counts = await mesh.counters("relay")
        return counts["queues.known"] >= before["queues.known"] + answer.envelopes

    await eventually(known)
    with pytest.raises(NotAllowed):
        await called(
            mesh,
            "relay",
            "ReEmit",
            wire.ReEmitRequest(tenant=TENANT),
            wire.ReEmitResponse,
            by=f"{TENANT}-bot",
        )


async def test_an_operator_sees_how_far_it_has_come_and_sends_it_again(mesh: DemoMesh) -> None:
    def run(*words: str) -> Any:
        place = ("--config", str(mesh.processes.config), "--state-dir", str(mesh.processes.state_dir))
        return CliRunner().invoke(app, ["relay", *words, *place, "--json"])

    status = await asyncio.to_thread(run, "status")
    assert status.exit_code == 0, (status.output, status.exception)
    told = orjson.loads(status.stdout)
    assert told["envelopes_sealed"] >= 1 and told["events_received"] >= 20 and told["tenants_parked"] == 0
    again = await asyncio.to_thread(run, "re-emit", TENANT)
    assert orjson.loads(again.stdout)["envelopes"] >= 1
    refused = await asyncio.to_thread(run, "re-emit", TENANT, "--after", "7")
    assert refused.exit_code != 0


async def test_nobody_claims_the_name_of_the_meshs_own_topics(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        with pytest.raises(BadRequest) as raised:
            await operator.claim_target("snavio.telemetry", TENANT)
        assert raised.value.reason == "reserved-name"


async def test_age_sent_and_deleted_are_metrics_of_each_tenants_queue(mesh: DemoMesh) -> None:
    files = CertificateFiles.in_folder(mesh.certificates("operator-admin"))
    channel = MeshChannel(mesh.addresses["mailbox"], files=files, service="mailbox")
    try:
        told = await channel.call(STATUS, StatusRequest(), StatusResponse, timeout_s=PATIENCE_S)
    finally:
        await channel.close()
    gauges = {each.name: each.value for each in told.gauge}
    label = f'{{tenant="{TENANT}"}}'
    assert gauges[f"telemetry_queue_sent{label}"] >= gauges[f"telemetry_queue_deleted{label}"] >= 1
    for name in ("age_seconds", "delayed", "dlq_depth"):
        assert gauges[f"telemetry_queue_{name}{label}"] >= 0


async def test_an_envelope_that_its_queue_refuses_for_good_is_kept_and_told(mesh: DemoMesh) -> None:
    await asyncio.to_thread(mesh.processes.kill, "relay")
    place = mesh.processes.mesh.state_dir / "relay" / "streams.db"
    store = await open_tenant_streams(place, clock=SystemClock())
    try:
        window = await store.window(TENANT)
        body = b"x" * (1 << 20)
        entry = StreamEntry(
            window.next_seq, "too-large", SOURCE, "command", 3, time.time_ns(), "b3:none", body
        )
        await store.append(TENANT, expected=window, fence=time.time_ns(), drafts=[], entries=[entry])
    finally:
        await store.close()
    mesh.processes.restart("relay")
    (row,) = await found(mesh, f"event = '{schema.PUBLISH_FAILED}'")
    told = fields(row)
    assert (told["tenant"], told["reason"]) == (TENANT, "oversized")
    kept = mesh.processes.mesh.archive() / "undelivered" / TENANT / f"{window.next_seq}.json"
    assert kept.name in told["detail"] and kept.read_bytes() == body
    (row,) = await found(mesh, "reason = 'queue_refused'")
    assert fields(row)["dropped_events"] == 3
