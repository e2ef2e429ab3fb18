"""Services that the edge needs and that are away: what goes on, what is said, and that it recovers by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from services.gateway.edge import commanding
from services.gateway.edge.commanding import Commanding
from snavio.domain.verdict import Verdict
from snavio.launch.free_ports import free_ports
from snavio.observe.edge_metric_names import EDGE
from snavio.sdk.outcome import Outcome
from snavio.sdk.producer import Producer
from snavio.v1.registry_pb2 import PROFILE_LOW
from tests.support.edge import API, SECRET, local_edge, signed
from tests.support.edge_cli import EdgeRun, child_pid, edge_run
from tests.support.mesh import NAME, TARGET, DemoMesh

FILE = """
ingress { listen 127.0.0.1:PORT }
pull_api { listen 127.0.0.1:PORT; prefix /pull; auth token raw:worker }
admin_api { listen 127.0.0.1:PORT; prefix /admin; auth token raw:admin }
observability { metrics { listen 127.0.0.1:PULL } }
/v { auth hmac vault:kv/edge
  pull { path /v } }
/pulled { pull { path /pulled } }
"""
REFUSED = "snavio_gateway_pull_refused_total"
"""A counter that is told from its first time on."""
SIGNED = f'{API}/c {{ auth hmac "raw:a shared secret"\n command {TARGET} {NAME} {{ source billing }} }}\n'


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.put_route(TARGET, NAME, profile=PROFILE_LOW)


@asynccontextmanager
async def vault() -> AsyncIterator[tuple[str, web.AppRunner]]:
    """A Vault with one secret."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/v1/kv/edge":
            return web.json_response({"data": {"value": SECRET.decode()}})
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", runner
    finally:
        await runner.cleanup()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that is there and says nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def reloads(edge: EdgeRun, text: str) -> dict[str, object]:
    """The words of the edge about its configuration, once it has tried the file."""
    before = (await asyncio.to_thread(edge.control.health))["config"]
    (edge.folder / "Hookaidofile").write_text(text)
    edge.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(90):
        while True:
            now = (await asyncio.to_thread(edge.control.health))["config"]
            if now != before:
                return now
            await asyncio.sleep(0.1)


async def test_an_edge_goes_on_without_vault_and_registry_and_a_reload_that_needs_them_changes_nothing(
    tmp_path: Path,
) -> None:
    async with vault() as (address, runner):
        with socket.socket() as held:
            # Another program has the port of a service: the mesh that only this edge uses takes a free one.
            held.bind(("127.0.0.1", 0))
            held.listen()
            taken = f"127.0.0.1:{held.getsockname()[1]}"
            variables = {
                "SNAVIO_VAULT_ADDR": address,
                "SNAVIO_VAULT_TOKEN": "t",
                "SNAVIO_MESH__SIGNER": taken,
            }
            async with edge_run(tmp_path, FILE, **variables) as edge:
                # Listeners that share a port, each under its prefix.
                url = f"http://127.0.0.1:{edge.port}"
                assert edge.process.stdout is not None
                first = [(await edge.process.stdout.readline()).decode().split() for _ in range(6)]
                assert first[:3] == [
                    ["ingress", url],
                    ["pull_api", f"{url}/pull"],
                    ["admin_api", f"{url}/admin"],
                ]
                assert first[4][:4] == ["POST", "/v", "auth", "hmac;"]
                assert first[5][:3] == ["POST", "/pulled", "NO"]
                assert (await edge.post("/v", b"1", signed(b"1", path="/v")))[0] == 202
                assert (await edge.post("/pulled"))[0] == 202
                name, metrics = first[3]
                assert (name, metrics) == ("metrics", f"http://127.0.0.1:{edge.pull}/metrics")
                edge.pull = edge.port
                status, found = await edge.work("/pull/v/dequeue", {"max_wait": "10s"})
                assert (status, len(found["items"])) == (200, 1)
                assert (await edge.work("/pull/v/dequeue", {}, token="guess"))[0] == 401
                assert (await edge.post("/pull"))[1]["code"] != "no-route"
                async with edge.session.get(f"{url}/admin/healthz") as answer:
                    assert answer.status == 200

                async with edge.session.get(metrics) as answer:
                    page = await answer.text()
                # Every metric that is told has a row in docs/metrics.md.
                told = set(re.findall(r"(?m)^# TYPE (\S+)", page))
                families = {
                    re.sub(r"_(bucket|sum|count)$", "", each) for each in re.findall(r"(?m)^\w+", page)
                }
                assert families == told
                assert told >= {each.name for each in EDGE if not each.labels} - {REFUSED}

                # Vault away: what it gave still counts, and a file with another secret of it is refused.
                await runner.cleanup()
                file = (tmp_path / "Hookaidofile").read_text()
                more = "/w { auth hmac vault:kv/other\n pull { path /w } }\n"
                config = await reloads(edge, file + more)
                assert config["generation"] == 1
                assert "vault:kv/other" in str(config["last_reload_failed"])
                assert SECRET.decode() not in edge.log

                # Registry away: requests are stored, a file whose rules it cannot take is not in force.
                registry = child_pid(edge.process.pid, "services.registry")
                with stopped(registry):
                    assert (await edge.post("/pulled"))[0] == 202
                    config = await reloads(edge, file.replace("vault:kv/edge", "raw:other"))
                    assert config["generation"] == 1
                    assert "Registry" in str(config["last_reload_failed"])
                    assert (await edge.post("/pulled"))[0] == 202
                config = await reloads(edge, file.replace("vault:kv/edge", '"raw:a shared secret"'))
                assert (config["generation"], config["last_reload_failed"]) == (2, None)
                assert (await edge.post("/v", b"2", signed(b"2", path="/v")))[0] == 202
                assert (await edge.post("/v", b"1", signed(b"1", path="/v", nonce="m")))[0] == 202


async def test_a_command_route_without_signer_is_503_and_then_202_with_the_same_signature(
    mesh: DemoMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commanding, "RETRY_SECONDS", 0.2)
    (port,) = free_ports(1)

    def build(source: str) -> Producer:
        return Producer(
            shield=mesh.addresses["shield"],
            signer=f"127.0.0.1:{port}",
            certificates=mesh.certificates(f"acme-{source}"),
        )

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, there = mesh.addresses["signer"].rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(there))
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))

    async with local_edge(tmp_path, SIGNED, commanding=Commanding(build)) as edge:
        headers = signed(b"x", path="/c")
        for _ in range(3):
            reply = await edge.post("/c", b"x", headers)
            assert reply.said == (503, "source-not-ready")
            assert int(reply.headers["Retry-After"]) >= 1
        server = await asyncio.start_server(forward, "127.0.0.1", port)
        try:
            async with asyncio.timeout(90):
                while (reply := await edge.post("/c", b"x", headers)).said == (503, "source-not-ready"):
                    await asyncio.sleep(0.1)
            assert reply.said == (202, "queued"), reply
            assert (await edge.post("/c", b"x", headers)).said == (401, "replayed")
        finally:
            server.close()


class Answers(Commanding):
    """A mesh that answers what it is told to."""

    def __init__(self, *verdicts: Verdict) -> None:
        super().__init__(lambda source: pytest.fail(f"no producer of {source}"))
        self._verdicts = list(verdicts)

    def want(self, sources: set[str]) -> None:
        """Nothing is started."""

    async def send(self, *_: object, command_id: str | None, **__: object) -> Outcome:
        assert command_id is not None
        return Outcome(self._verdicts.pop(0), command_id)


async def test_a_command_whose_answer_was_lost_is_no_replay_of_itself_and_one_thereafter_is(
    tmp_path: Path,
) -> None:
    verdicts = (Verdict.OUTCOME_UNKNOWN, Verdict.OUTCOME_UNKNOWN, Verdict.DUPLICATE)
    async with local_edge(tmp_path, SIGNED, commanding=Answers(*verdicts)) as edge:
        headers = signed(b"x", path="/c")
        assert (await edge.post("/c", b"x", headers)).status == 503
        assert (await edge.post("/c", b"x", headers)).status == 503
        assert (await edge.post("/c", b"x", headers)).said == (202, "duplicate")
        assert (await edge.post("/c", b"x", headers)).said == (401, "replayed")
    # Another process, which has never seen the request: what the mesh knows is a replay.
    async with local_edge(tmp_path, SIGNED, commanding=Answers(Verdict.DUPLICATE)) as edge:
        assert (await edge.post("/c", b"x", headers)).said == (401, "replayed")
