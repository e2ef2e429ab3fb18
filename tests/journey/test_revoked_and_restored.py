"""Services of a principal whose certificate was revoked: they say so, and go on by themselves once that is undone."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from snavio.admin.certificates import CertificateClient
from snavio.admin.directory import DirectoryClient
from snavio.admin.explain import explain
from snavio.domain.directory import Principal, Service
from snavio.domain.verdict import Verdict
from snavio.errors import NotAllowed
from snavio.rpc.renewal import Leaf
from snavio.sdk import Consumer, Producer
from snavio.sdk.context import Context, ContextFile
from snavio.sdk.enrolment import enroll
from tests.support.mesh import NAME, TARGET, TENANT, DemoMesh

WITHIN_S = 60.0
BILLING = f"spiffe://snavio.local/tenant/{TENANT}/service/billing"


def desk(mesh: DemoMesh) -> CertificateClient:
    return CertificateClient(
        signer_address=mesh.addresses["signer"], certificates=mesh.certificates("operator-admin")
    )


async def furnish(mesh: DemoMesh) -> None:
    """A principal that may act as both services."""
    async with DirectoryClient(
        mesh.addresses["registry"], certificates=mesh.certificates("operator-admin")
    ) as client:
        await client.apply(
            [
                Principal(TENANT, "ci"),
                Service(TENANT, "billing", ("ci",)),
                Service(TENANT, "bot", ("ci",)),
            ]
        )


@pytest.fixture
async def context(mesh: DemoMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """The context of a principal that has just joined."""
    async with DirectoryClient(
        mesh.addresses["registry"], certificates=mesh.certificates("operator-admin")
    ) as client:
        token = (await client.new_token(TENANT, principal="ci")).token
    folder = tmp_path / "certs" / f"{TENANT}-ci"
    await enroll(token, address=mesh.processes.enrolment, folder=folder)
    made = Context("here", folder, TENANT, addresses=mesh.addresses)
    ContextFile(tmp_path).put(made, use=True)
    monkeypatch.setenv("SNAVIO_CONFIG_DIR", str(tmp_path))
    return made


async def delivered(producer: Producer, *, until: Verdict = Verdict.DELIVERED) -> str:
    """Send until the verdict is this one; what was sent then."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            outcome = await producer.send(TARGET, NAME, b"hello", timeout_s=4.0)
            if outcome.verdict is until:
                return outcome.command_id
            await asyncio.sleep(0.05)


async def test_a_producer_goes_on_after_its_certificate_alone_was_revoked(
    mesh: DemoMesh, context: Context
) -> None:
    async with Producer.from_context("billing") as producer:
        await delivered(producer)
        first = Leaf.in_folder(context.service_folder("billing")).serial
        async with desk(mesh) as operator:
            await operator.revoke(first, reason="stolen")
        async with asyncio.timeout(WITHIN_S):
            while Leaf.in_folder(context.service_folder("billing")).serial == first:
                assert (await producer.send(TARGET, NAME, b"hello")).delivered
                await asyncio.sleep(0.05)
        await delivered(producer)


async def test_a_producer_says_revoked_while_its_service_is_barred_and_goes_on_when_it_is_restored(
    mesh: DemoMesh, context: Context
) -> None:
    async with Producer.from_context("billing") as producer:
        await delivered(producer)
        async with desk(mesh) as operator:
            await operator.revoke_identity(BILLING, reason="stolen")
            refused = await delivered(producer, until=Verdict.CERTIFICATE_REVOKED)
            for folder in (context.identity, mesh.certificates("operator-admin")):
                # Nothing of a refused call is read, and yet whoever asks for the command is told of the refusal.
                told = await explain(refused, addresses=mesh.addresses, certificates=folder)
                assert told.trace is None
                found = {(service, one.identity, one.reason) for service, one in told.refused_certificates}
                assert ("shield", BILLING, "certificate-revoked") in found
            await operator.restore_identity(BILLING)
        await delivered(producer)


async def test_a_producer_that_starts_with_a_revoked_certificate_gets_another(
    mesh: DemoMesh, context: Context
) -> None:
    async with Producer.from_context(f"{TENANT}/billing", context="here") as producer:
        await delivered(producer)
    first = Leaf.in_folder(context.service_folder("billing")).serial
    async with desk(mesh) as operator:
        await operator.revoke_identity(BILLING, reason="stolen")
        # Within seconds; until then the certificate is as good as it was.
        with contextlib.suppress(NotAllowed):
            async with Producer.from_context("billing") as producer:
                await delivered(producer, until=Verdict.CERTIFICATE_REVOKED)
        await operator.restore_identity(BILLING)
    async with Producer.from_context("billing") as producer:
        await delivered(producer)
    assert Leaf.in_folder(context.service_folder("billing")).serial != first


async def test_a_consumer_goes_on_after_its_certificate_was_revoked(mesh: DemoMesh, context: Context) -> None:
    async with (
        Producer.from_context("billing") as producer,
        Consumer.from_context(TARGET, service="bot") as consumer,
        asyncio.timeout(WITHIN_S),
    ):
        sent = await delivered(producer)
        await received(consumer, sent)
        first = Leaf.in_folder(context.service_folder("bot")).serial
        async with desk(mesh) as operator:
            await operator.revoke(first, reason="stolen")
        while Leaf.in_folder(context.service_folder("bot")).serial == first:
            await received(consumer, await delivered(producer))
        await received(consumer, await delivered(producer))


async def received(consumer: Consumer, command_id: str) -> None:
    async for command in consumer:
        await command.ack()
        if command.command_id == command_id:
            return


async def test_retries_of_the_sdk_write_no_line_each(
    mesh: DemoMesh, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Consumer.from_context(TARGET, service="bot") as consumer:
        asked = asyncio.ensure_future(anext(consumer))
        await asyncio.to_thread(mesh.processes.kill, "mailbox")
        # Longer than ten of the first pauses.
        await asyncio.wait({asked}, timeout=2.0)
        await asyncio.to_thread(mesh.processes.restart, "mailbox")
        asked.cancel()
    said = capsys.readouterr()
    assert "retry_scheduled" not in said.out + said.err
