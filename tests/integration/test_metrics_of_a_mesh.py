"""What a running mesh tells a scraper: every reading has a name, and commands are counted once."""

from __future__ import annotations

import asyncio
import re
import urllib.request

import pytest

from snavio.config import MeshSettings
from snavio.launch.processes import SERVICES
from snavio.observe.metric import Kind
from snavio.observe.metric_names import ALIASES, METRICS, REPEATED
from snavio.observe.points import _row
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")
SECONDS = 60
_LINE = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


def health(mesh: DemoMesh, service: str) -> str:
    settings: MeshSettings = mesh.processes.mesh
    return f"http://{settings.health_address(service)}"


def got(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return str(answer.read().decode())


def read(text: str) -> Samples:
    """A scrape, as a strict reader takes it: each series once, each name with its type before it."""
    found: Samples = {}
    types: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        if line.startswith("#"):
            words = line.split(" ", 3)
            if words[1] == "TYPE":
                assert words[2] not in types, words[2]
                types[words[2]] = words[3]
            continue
        matched = _LINE.fullmatch(line)
        assert matched is not None, line
        name, labels, value = matched.groups()
        base = name if name in types else re.sub(r"_(bucket|sum|count)$", "", name)
        assert base in types, line
        key = frozenset(_LABEL.findall(labels or ""))
        assert key not in found.setdefault(name, {}), line
        found[name][key] = float(value)
    return found


async def scrape(mesh: DemoMesh, service: str) -> Samples:
    return read(await asyncio.to_thread(got, health(mesh, service) + "/metrics"))


def labels(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset(given.items())


async def test_every_service_is_alive_and_ready(mesh: DemoMesh) -> None:
    for service in SERVICES:
        assert await asyncio.to_thread(got, health(mesh, service) + "/healthz") == "ok\n"
        async with asyncio.timeout(SECONDS):
            while '"ready":true' not in await asyncio.to_thread(ready, mesh, service):
                await asyncio.sleep(0.1)


def ready(mesh: DemoMesh, service: str) -> str:
    try:
        return got(health(mesh, service) + "/readyz")
    except urllib.error.HTTPError as error:
        return str(error)


async def test_every_reading_of_a_mesh_has_a_name(mesh: DemoMesh) -> None:
    """What `snavio status` shows is exported, and by the services that the table names."""
    files = CertificateFiles.in_folder(mesh.certificates("operator-admin"))
    rows = {metric.prometheus for metric in METRICS}
    for service in SERVICES:
        channel = MeshChannel(mesh.addresses[service], files=files, service=service)
        try:
            status = await channel.call(
                "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse, timeout_s=SECONDS
            )
        finally:
            await channel.close()
        told = [(one.name, Kind.COUNTER) for one in status.counter]
        told += [(one.name, Kind.GAUGE) for one in status.gauge]
        told += [(one.name, Kind.HISTOGRAM) for one in status.latency]
        for name, kind in told:
            base = name.partition("{")[0]
            if base in REPEATED or base in rows or name.startswith(("topic.", *ALIASES)):
                continue
            if service == "mailbox" and name == "inflight":  # for people: that of all topics
                continue
            row = _row(base, kind)
            assert row is not None, f"{service}: {name} has no row in snavio/observe/metric_names.py"
            assert not row[0].by or service in row[0].by, f"{service} tells {row[0].name}"


async def test_a_command_is_counted_once_in_the_fleet(mesh: DemoMesh) -> None:
    async def total(outcome: str) -> dict[str, float]:
        told = {service: await scrape(mesh, service) for service in ("shield", "fast", "slow")}
        name, where = "snavio_route_commands_total", labels(target=TARGET, command=NAME, outcome=outcome)
        return {
            "route": sum(each.get(name, {}).get(where, 0) for each in told.values()),
            "source": sum(
                each.get("snavio_source_commands_total", {}).get(
                    labels(tenant="acme", source=SOURCE, outcome=outcome), 0
                )
                for each in told.values()
            ),
            "all": sum(each["snavio_commands_total"][labels(outcome=outcome)] for each in told.values()),
            "answers": told["shield"]["snavio_shield_answers_total"][labels(reason=outcome)],
        }

    before = await total("delivered"), await total("route-missing")
    async with mesh.producer() as producer:
        for _ in range(7):
            assert (await producer.send(TARGET, NAME, b"x")).delivered
        for number in range(5):
            assert not (await producer.send(f"nobody-{number}", "at-home", b"x")).delivered
    async with asyncio.timeout(SECONDS):
        while (await total("delivered"))["all"] < before[0]["all"] + 7:
            await asyncio.sleep(0.05)
    after = await total("delivered")
    assert {name: after[name] - before[0][name] for name in after} == dict.fromkeys(after, 7)
    after = await total("route-missing")
    assert {name: after[name] - before[1][name] for name in after} == {
        "route": 0,  # no route has the name, so it makes no row
        "source": 5,
        "all": 5,
        "answers": 5,
    }
    folded = [
        (await scrape(mesh, service))["snavio_commands_folded_total"][labels(table="routes")]
        for service in ("fast", "slow")
    ]
    assert sum(folded) >= 5
