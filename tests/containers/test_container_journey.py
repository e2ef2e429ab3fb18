"""The journey of a command through containers, which are killed and restarted in turn."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from snavio.admin.operator import Operator
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.launch.processes import SERVICES
from snavio.sdk import Consumer, Producer
from tests.support.containers import HARDENED, USER, ContainerMesh, build, container_mesh, inspect, run

pytestmark = pytest.mark.skipif(
    not os.environ.get("SNAVIO_CONTAINERS"),
    reason="`make container-test` runs these: they need a container engine",
)
MB = 1_000_000
TARGET, NAME = "discord-bot", "notify-user"


@pytest.fixture(scope="module")
def small() -> str:
    return build("service")


@pytest.fixture(scope="module")
def whole() -> str:
    return build("mesh")


@pytest.fixture(scope="module")
def mesh(small: str, whole: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerMesh]:
    # Relay alone writes Parquet; the others do without the library that weighs most.
    images = {service: whole if service == "relay" else small for service in SERVICES}
    with container_mesh(tmp_path_factory.mktemp("containers"), images) as running:
        asyncio.run(registered(running))
        yield running


async def registered(mesh: ContainerMesh) -> None:
    """The tenant acme, whose billing may send to its discord-bot, which its bot consumes."""
    async with Operator(
        signer_address=mesh.addresses["signer"],
        registry_address=mesh.addresses["registry"],
        certificates=mesh.operator,
    ) as operator:
        await operator.create_tenant("acme")
        for service in ("billing", "bot"):
            await operator.register_service("acme", service)
            identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, service, "acme")
            await operator.certify(identity, mesh.folder / f"acme-{service}")
        await operator.claim_target(TARGET, "acme")
        await operator.put_route(TARGET, NAME)
        await operator.grant("acme/billing", TARGET, NAME)


async def sent(mesh: ContainerMesh, payloads: list[bytes]) -> int:
    async with Producer(
        shield=mesh.addresses["shield"],
        signer=mesh.addresses["signer"],
        certificates=mesh.folder / "acme-billing",
    ) as producer:
        answer = await producer.send_batch([(TARGET, NAME, payload) for payload in payloads])
    return answer.delivered


async def received(mesh: ContainerMesh, count: int) -> set[bytes]:
    got: set[bytes] = set()
    async with Consumer(
        mailbox=mesh.addresses["mailbox"],
        topic=f"acme/{TARGET}",
        certificates=mesh.folder / "acme-bot",
        visibility_s=30.0,
    ) as consumer:
        async with asyncio.timeout(60):
            async for command in consumer:
                got.add(command.payload)
                await command.ack()
                if len(got) == count:
                    break
        # An ack that nobody has confirmed would come again to the next test.
        await consumer.flush()
    return got


def test_image_is_small_unprivileged_and_has_nothing_to_build_with(small: str, whole: str) -> None:
    assert inspect(small)["Size"] <= 330 * MB
    assert inspect(whole)["Size"] <= 500 * MB
    assert inspect(small)["Config"]["User"] == f"{USER}:{USER}"
    assert inspect(small)["Config"]["Entrypoint"] == ["python3", "-P", "-m"]
    for module in ("pip", "pyarrow"):
        assert f"No module named {module}" in run("run", "--rm", *HARDENED, small, module, check=False).stderr


def test_containers_run_as_deployed_without_any_right(mesh: ContainerMesh) -> None:
    for service in SERVICES:
        status = run("exec", mesh.name(service), "cat", "/proc/1/status").stdout
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split()[0] == str(USER)
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
        assert fields["NoNewPrivs"] == "1"
        assert run("exec", mesh.name(service), "touch", "/opt/snavio/x", check=False).returncode != 0
        # What it has of the mesh is its own certificate.
        certificates = {path.name for path in (mesh.state(service) / "certs").iterdir()}
        assert service == "signer" or certificates == {service}


async def test_command_goes_through_containers(mesh: ContainerMesh) -> None:
    payloads = [b"%d" % number for number in range(100)]
    assert await sent(mesh, payloads) == 100
    assert await received(mesh, 100) == set(payloads)


@pytest.mark.parametrize("service", SERVICES)
async def test_nothing_acknowledged_is_lost_when_a_container_is_killed(
    mesh: ContainerMesh, service: str
) -> None:
    before = [f"{service} before {number}".encode() for number in range(50)]
    assert await sent(mesh, before) == 50
    await asyncio.to_thread(mesh.kill, service)
    after = [f"{service} after {number}".encode() for number in range(50)]
    assert await sent(mesh, after) == 50
    assert await received(mesh, 100) == {*before, *after}


async def test_everything_is_restarted_in_turn(mesh: ContainerMesh) -> None:
    before = [f"rolling {number}".encode() for number in range(50)]
    assert await sent(mesh, before) == 50
    for service in SERVICES:
        await asyncio.to_thread(mesh.restart, service)
        # Ended by its own drain, not by the engine's patience.
        assert "stopped" in mesh.log(service)
    assert await sent(mesh, [b"rolled"]) == 1
    assert await received(mesh, 51) == {*before, b"rolled"}
