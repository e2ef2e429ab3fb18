"""Many readers and bad ones: one that never reads costs the others nothing, and all come back after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import pytest

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk.server_sent_events import EventReader
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.https import SERVER_NAME, context
from tests.support.mesh import NAME, TARGET, DemoMesh

SETTINGS: dict[str, dict[str, object]] = {
    "gateway": {
        "streams_per_tenant": 1000,
        "opens_per_minute": 100_000,
        "write_limit_s": 1.0,
        "heartbeat_s": 0.5,
    },
    "relay": {"stream_events_per_s": 100_000},
}
READERS = 60
WITHIN_S = 120.0
EVENTS = "/v1/tenants/acme/events"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, "ci", "acme")
        await operator.certify(identity, mesh.certificates("acme-ci"))


async def opened(
    mesh: DemoMesh, *, last_event_id: str = "", receive_buffer: int = 0
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has sent its request."""
    host, _, port = mesh.processes.mesh.https.rpartition(":")
    folder = mesh.certificates("acme-ci")
    trust: ssl.SSLContext = context(folder / "ca.pem", folder)
    plain = socket.socket()
    if receive_buffer:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (host, int(port)))
    reader, writer = await asyncio.open_connection(
        sock=plain, ssl=trust, server_hostname=SERVER_NAME, limit=1 << 16
    )
    head = f"GET {EVENTS} HTTP/1.1\r\nhost: x\r\n"
    if last_event_id:
        head += f"last-event-id: {last_event_id}\r\n"
    writer.write(f"{head}\r\n".encode())
    return reader, writer


async def readings(mesh: DemoMesh) -> dict[str, float]:
    """Counters and gauges of the gateway."""
    files = CertificateFiles.in_folder(mesh.certificates("operator-admin"))
    channel = MeshChannel(mesh.addresses["gateway"], files=files, service="gateway")
    try:
        told = await channel.call(
            "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse, timeout_s=10
        )
    finally:
        await channel.close()
    return {each.name: float(each.value) for each in (*told.counter, *told.gauge)}


class Follower:
    """Reads as raw as it can, and remembers its last number."""

    def __init__(self, mesh: DemoMesh) -> None:
        self._mesh = mesh
        self.ids: list[int] = []
        self.connections = 0

    async def follow(self) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
                await self._one()
            await asyncio.sleep(0.2)

    async def _one(self) -> None:
        reader, writer = await opened(self._mesh, last_event_id=str(self.ids[-1]) if self.ids else "")
        try:
            status = await reader.readline()
            if b" 200 " not in status:
                return
            await reader.readuntil(b"\r\n\r\n")
            self.connections += 1
            events = EventReader()
            while size := int((await reader.readline()).strip() or b"0", 16):
                for event in events.feed(await reader.readexactly(size)):
                    assert event.event_id is not None
                    self.ids.append(int(event.event_id))
                await reader.readexactly(2)
        finally:
            writer.close()


async def eventually(condition: object, *, within_s: float = WITHIN_S) -> None:
    assert callable(condition)
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.05)


async def test_a_reader_that_never_reads_is_cut_off_and_the_others_miss_nothing(mesh: DemoMesh) -> None:
    follower = Follower(mesh)
    following = asyncio.create_task(follower.follow())
    await eventually(lambda: follower.connections)
    _, silent = await opened(mesh, receive_buffer=4096)
    # It takes nothing from here on, not even what its own buffers would.
    silent.transport.pause_reading()  # type: ignore[attr-defined]
    try:
        async with asyncio.timeout(WITHIN_S), mesh.producer() as producer:
            while (await readings(mesh)).get("sse_active_streams", 0) < 2:
                await asyncio.sleep(0.1)
            while (await readings(mesh))["sse_active_streams"] > 1:
                await producer.send_batch([(TARGET, NAME, b"x")] * 5000)
        # The tail of verified envelopes stays within the tenant's share, whatever somebody does not read.
        assert (await readings(mesh)).get('shares.tail_bytes.used{tenant="acme"}', 0) <= 1 << 20
        seen = len(follower.ids)
        async with mesh.producer() as producer:
            await producer.send(TARGET, NAME, b"x")
        await eventually(lambda: len(follower.ids) > seen)
        assert follower.ids == list(range(follower.ids[0], follower.ids[0] + len(follower.ids)))
        assert follower.connections == 1
    finally:
        following.cancel()
        silent.transport.abort()
        await asyncio.gather(following, return_exceptions=True)


async def test_readers_that_reconnect_at_once_all_come_back_where_they_were(mesh: DemoMesh) -> None:
    followers = [Follower(mesh) for _ in range(READERS)]
    tasks = [asyncio.create_task(follower.follow()) for follower in followers]
    try:
        await eventually(lambda: all(follower.connections for follower in followers))
        async with mesh.producer() as producer:
            await producer.send(TARGET, NAME, b"x")
        await eventually(lambda: all(follower.ids for follower in followers))
        await asyncio.to_thread(mesh.processes.kill, "gateway")
        async with mesh.producer() as producer:
            await producer.send(TARGET, NAME, b"x")
        mesh.processes.restart("gateway")
        await eventually(lambda: all(follower.connections >= 2 for follower in followers))
        async with mesh.producer() as producer:
            await producer.send(TARGET, NAME, b"x")
        last = max(follower.ids[-1] for follower in followers)
        await eventually(lambda: all(follower.ids[-1] >= last for follower in followers))
        for follower in followers:
            begun = follower.ids[0]
            assert follower.ids == list(range(begun, begun + len(follower.ids))), "a gap, or one twice"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
