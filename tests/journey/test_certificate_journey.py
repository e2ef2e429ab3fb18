"""From a token to commands that flow while certificates end, are renewed and are revoked: real processes, real time."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import orjson
import pytest

from snavio.admin.certificates import CertificateClient
from snavio.admin.directory import DirectoryClient
from snavio.domain.directory import Principal
from snavio.errors import SnavioError, Unauthenticated
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import Leaf
from snavio.sdk import Consumer, Producer
from snavio.sdk.enrolment import EnrolmentResult, enroll
from snavio.v1 import registry_pb2 as reg
from snavio.v1.mailbox_pb2 import StatsRequest, StatsResponse
from tests.support.mesh import NAME, TARGET, TENANT, TOPIC, DemoMesh
from tests.support.terminal import SNAVIO, environment

WITHIN_S = 60.0
# Renewed after two thirds: the rest must be longer than any delay of a busy machine.
LIFE_S = 12
pytestmark = pytest.mark.asyncio(loop_scope="module")


def certificate_client(mesh: DemoMesh) -> CertificateClient:
    return CertificateClient(
        signer_address=mesh.addresses["signer"], certificates=mesh.certificates("operator-admin")
    )


def directory(mesh: DemoMesh) -> DirectoryClient:
    return DirectoryClient(mesh.addresses["registry"], certificates=mesh.certificates("operator-admin"))


async def snavio(mesh: DemoMesh, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*SNAVIO, *words],
            cwd=mesh.processes.state_dir,
            input=given,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            env=environment(),
            check=False,
        )

    return await asyncio.to_thread(run)


async def delegate(mesh: DemoMesh, service: str, principal: str) -> None:
    files = CertificateFiles.in_folder(mesh.certificates("operator-admin"))
    channel = MeshChannel(mesh.addresses["registry"], files=files, service="registry")
    try:
        await channel.call(
            "/snavio.v1.Registry/RegisterService",
            reg.RegisterServiceRequest(
                service=reg.Service(tenant=TENANT, service=service, principal=[principal])
            ),
            reg.WriteResponse,
            timeout_s=10.0,
        )
    finally:
        await channel.close()


async def test_commands_flow_while_certificates_of_seconds_end_and_are_renewed(
    mesh: DemoMesh, tmp_path: Path
) -> None:
    async with directory(mesh) as operator:
        token = (await operator.new_token(TENANT)).token
    words = (
        "enroll",
        "-",
        "--signer",
        mesh.processes.enrolment,
        "--name",
        "ci",
        "--out",
        str(tmp_path / "ci"),
    )
    told = await snavio(mesh, *words, "--json", given=token + "\n")
    assert told.returncode == 0, told.stderr
    assert orjson.loads(told.stdout)["identity"] == f"spiffe://snavio.local/tenant/{TENANT}/principal/ci"
    again = await snavio(mesh, "enroll", token, *words[2:-1], str(tmp_path / "ci-2"))
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "snavio: This token is not good, or not any more; ask an operator for another.\n"
    for service in ("billing", "bot"):
        await delegate(mesh, service, "ci")
    producer = Producer(
        shield=mesh.addresses["shield"],
        signer=mesh.addresses["signer"],
        certificates=tmp_path / "billing",
        principal_certificates=tmp_path / "ci",
        source=f"{TENANT}/billing",
        certificate_ttl_s=LIFE_S,
    )
    consumer = Consumer(
        mailbox=mesh.addresses["mailbox"],
        signer=mesh.addresses["signer"],
        topic=TOPIC,
        certificates=tmp_path / "bot",
        principal_certificates=tmp_path / "ci",
        source=f"{TENANT}/bot",
        certificate_ttl_s=LIFE_S,
    )
    sent: set[str] = set()
    received: set[str] = set()

    async def receive() -> None:
        async for command in consumer:
            received.add(command.command_id)
            await command.ack()

    async with asyncio.timeout(WITHIN_S), producer, consumer:
        receiving = asyncio.create_task(receive())
        first = [Leaf.in_folder(tmp_path / name) for name in ("billing", "bot")]
        loop = asyncio.get_running_loop()
        end = loop.time() + LIFE_S + 0.7
        while loop.time() < end:
            outcome = await producer.send(TARGET, NAME, b"hello")
            assert (outcome.delivered, outcome.attempts) == (True, 1), outcome
            sent.add(outcome.command_id)
            await asyncio.sleep(0.01)
        while not sent <= received:
            assert not receiving.done(), receiving
            await asyncio.sleep(0.01)
        receiving.cancel()
        await asyncio.wait({receiving})
    for before, name in zip(first, ("billing", "bot"), strict=True):
        after = Leaf.in_folder(tmp_path / name)
        assert after.serial != before.serial
        assert after.not_after_ns > before.not_after_ns


async def test_revocation_is_felt_by_a_producer_in_the_middle_of_its_stream(mesh: DemoMesh) -> None:
    async with certificate_client(mesh) as operator, mesh.operator() as registrar:
        await mesh.register_service(registrar, "billing")
        serial = Leaf.in_folder(mesh.certificates(f"{TENANT}-billing")).serial
        async with asyncio.timeout(WITHIN_S), mesh.producer() as producer:
            assert (await producer.send(TARGET, NAME, b"before")).delivered
            assert serial in (await operator.revoke(serial, reason="test")).serial
            reasons: list[str] = []
            while not reasons or reasons[-1] == "delivered":
                outcomes = await producer.send_batch([(TARGET, NAME, b"after")] * 10)
                reasons.append(outcomes[0].reason)
                await asyncio.sleep(0.02)
            assert reasons[-1] == "certificate-revoked"
            # And not only once.
            assert (await producer.send(TARGET, NAME, b"after")).reason == "certificate-revoked"


async def test_revocation_is_felt_by_a_consumer(mesh: DemoMesh) -> None:
    async with certificate_client(mesh) as operator, mesh.operator() as registrar:
        for service in ("billing", "bot"):
            await mesh.register_service(registrar, service)
        serial = Leaf.in_folder(mesh.certificates(f"{TENANT}-bot")).serial
        async with asyncio.timeout(WITHIN_S), mesh.consumer() as consumer, mesh.producer() as producer:
            await operator.revoke(serial, reason="test")
            await _shut_out(mesh, "bot")
            assert (await producer.send(TARGET, NAME, b"after the revocation")).delivered
            # Not even a Receive that was waiting all the time hands it out.
            payloads = []
            with pytest.raises(Unauthenticated) as refusal:
                async for command in consumer:
                    payloads.append(command.payload)
    assert refusal.value.reason == "certificate-revoked"
    assert b"after the revocation" not in payloads


async def _shut_out(mesh: DemoMesh, service: str) -> None:
    """Wait until the mailbox refuses the revoked certificate."""
    files = CertificateFiles.in_folder(mesh.certificates(f"{TENANT}-{service}"))
    channel = MeshChannel(mesh.addresses["mailbox"], files=files, service="mailbox")
    try:
        while True:
            with pytest.raises(SnavioError) as refusal:  # It has no capability, either way.
                await channel.call("/snavio.v1.Mailbox/Stats", StatsRequest(), StatsResponse, timeout_s=10.0)
            if refusal.value.reason == "certificate-revoked":
                return
            await asyncio.sleep(0.05)
    finally:
        await channel.close()


async def test_operator_lists_revokes_and_restores_by_command(mesh: DemoMesh) -> None:
    where = ("--state-dir", ".", "--config", "snavio.toml")
    identity = "spiffe://snavio.local/tenant/acme/principal/nobody"
    listed, nonsense, barred = await asyncio.gather(
        snavio(mesh, "certs", "ls", *where, "--json"),
        snavio(mesh, "certs", "revoke", "NONSENSE", *where),
        snavio(mesh, "certs", "revoke", identity, *where),
    )
    assert listed.returncode == 0, listed.stderr
    records = orjson.loads(listed.stdout)["certificates"]
    assert "spiffe://snavio.local/mesh/shield" in {record["identity"] for record in records}
    assert (nonsense.returncode, nonsense.stdout) == (2, "")
    assert nonsense.stderr == (
        "snavio: 'NONSENSE' is neither a serial nor an identity, spiffe://…: `snavio certs ls` shows both.\n"
    )
    # The beginning of a serial ends nothing, so it must not sound as if it had.
    begun = await snavio(mesh, "certs", "revoke", records[0]["serial"][:8], *where)
    assert (begun.returncode, begun.stdout) == (1, "")
    assert f"nothing was revoked. Did you mean {records[0]['serial']}?" in begun.stderr
    assert barred.stdout == "It had no living certificate; it gets none from now on.\n"
    restored = await snavio(mesh, "certs", "restore", identity, *where)
    assert restored.stdout == "It may have certificates again.\n"


async def test_token_for_an_unknown_tenant_is_refused_in_one_sentence(mesh: DemoMesh) -> None:
    words = ("enroll", "--new-token", "--state-dir", ".", "--config", "snavio.toml", "--tenant")
    unknown, known = await asyncio.gather(snavio(mesh, *words, "nosuch"), snavio(mesh, *words, TENANT))
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == (
        "snavio: There is no tenant nosuch: `snavio tenant invite nosuch --contact ADDRESS` makes and invites one.\n"
    )
    assert known.returncode == 0
    assert known.stdout.startswith("snv1.")


async def test_killed_signer_gives_no_second_certificate_for_one_token(
    mesh: DemoMesh, tmp_path: Path
) -> None:
    async with directory(mesh) as operator:
        await operator.apply([Principal(TENANT, "racer")])
        token = (await operator.new_token(TENANT, principal="racer")).token

    def newcomers(life: str) -> list[asyncio.Task[EnrolmentResult]]:
        return [
            asyncio.create_task(
                enroll(token, address=mesh.processes.enrolment, folder=tmp_path / f"{life}-{number}")
            )
            for number in range(4)
        ]

    first = newcomers("first")
    # Wherever they are then: before the token is taken, after it, or between certificate and answer.
    await asyncio.wait(first, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
    mesh.processes.kill("signer")
    before = await asyncio.gather(*first, return_exceptions=True)
    mesh.processes.restart("signer")
    after = await asyncio.gather(*newcomers("second"), return_exceptions=True)
    wins = [outcome for outcome in (*before, *after) if isinstance(outcome, EnrolmentResult)]
    async with certificate_client(mesh) as certificates:
        living = [
            record.serial
            async for record in certificates.living(f"spiffe://snavio.local/tenant/{TENANT}/principal/racer")
        ]
    assert len(wins) <= 1
    assert len(living) <= 1
    assert {win.serial for win in wins} <= set(living)
