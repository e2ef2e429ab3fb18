"""Routes that make commands: signed as a service of the tenant, judged by the mesh like every command."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.gateway.edge.commanding import Commanding
from snavio.v1.registry_pb2 import PROFILE_LOW
from tests.support.edge import API, local_edge, signed
from tests.support.mesh import NAME, TARGET, DemoMesh

FILE = (
    API
    + f"""
/c {{ auth hmac "raw:a shared secret"
  command {TARGET} {NAME} {{ source billing; id header X-Delivery }} }}
/other {{ command {TARGET} another-command {{ source billing }} }}
/foreign {{ command nobodys-target {NAME} {{ source billing }} }}
"""
)


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.put_route(TARGET, "another-command", profile=PROFILE_LOW)


async def test_a_request_becomes_a_command_and_the_verdict_of_the_mesh_its_answer(
    mesh: DemoMesh, tmp_path: Path
) -> None:
    commanding = Commanding(mesh.producer)
    async with local_edge(tmp_path, FILE, commanding=commanding) as edge, mesh.consumer() as consumer:
        headers = {**signed(b'{"a":1}', path="/c"), "X-Delivery": "d-1", "Content-Type": "application/json"}
        async with asyncio.timeout(60):
            while (reply := await edge.post("/c", b'{"a":1}', headers)).said == (503, "source-not-ready"):
                assert "Retry-After" in reply.headers
                await asyncio.sleep(0.1)
        assert reply.said == (202, "queued"), reply
        assert (await edge.post("/c", b'{"a":1}', headers)).said == (401, "replayed")
        async with asyncio.timeout(60):
            async for message in consumer:
                assert message.payload == b'{"a":1}' and message.command_id == reply.document["id"]
                assert message.source == "acme/billing" and message.content_type == "application/json"
                await message.ack()
                break
        assert (await edge.post("/other", b"x")).said == (403, "acl-deny")
        assert (await edge.post("/foreign", b"x")).said == (404, "route-missing")
        found = edge.recent.find(reply.document["id"])
        assert found is not None and found["steps"][-1]["step"] == "stored"
