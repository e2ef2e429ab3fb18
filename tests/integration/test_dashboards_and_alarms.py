"""Dashboards and alarms name what a running mesh tells; promtool takes the rules, and each rings when it should."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from snavio.launch.processes import SERVICES
from tests.integration.test_metrics_of_a_mesh import scrape
from tests.support.mesh import NAME, TARGET, DemoMesh
from tools.observe import configuration, program

pytestmark = pytest.mark.asyncio(loop_scope="module")
FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "observability"
_WORDS = frozenset(
    {"sum", "by", "rate", "increase", "histogram_quantile", "topk", "vector", "or", "on", "group_left"}
    | {"le", "and", "up", "delta", "max"}
)
needs_promtool = pytest.mark.skipif(
    program("promtool") is None, reason="promtool is not here: `make prometheus` unpacks it"
)


def expressions() -> Iterator[tuple[str, str]]:
    for path in sorted((FOLDER / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            yield from ((f"{path.stem}: {panel['title']}", target["expr"]) for target in panel["targets"])
    for group in yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]:
        yield from ((rule["alert"], rule["expr"]) for rule in group["rules"])


def names(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|on|group_left)\s*\([^)]*\)", "", bare)
    return set(re.findall(r"[a-zA-Z_][a-zA-Z0-9_]*", bare)) - _WORDS


async def test_every_metric_of_a_dashboard_or_an_alarm_is_told_by_a_running_mesh(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer, mesh.consumer() as consumer:
        assert (await producer.send(TARGET, NAME, b"x")).delivered
        assert not (await producer.send("nobody", NAME, b"x")).delivered
        command = await anext(aiter(consumer))
        await command.nack(dead=True, durable=True)
    told: set[str] = set()
    async with asyncio.timeout(60):
        while not {"snavio_events_total", "snavio_route_commands_total"} <= told:
            for service in SERVICES:
                told |= (await scrape(mesh, service)).keys()
            await asyncio.sleep(0.1)
    missing = {where: names(expression) - told for where, expression in expressions()}
    assert {where: found for where, found in missing.items() if found} == {}


async def test_this_test_would_notice_a_name_that_is_none() -> None:
    found = names('sum by (le, a) (rate(no_such_metric{x="nor_this"}[5m])) / on (job) other_one > 0.05')
    assert found == {"no_such_metric", "other_one"}


def checked(*words: str) -> None:
    tool = program("promtool")
    ran = subprocess.run(
        [str(tool), *words], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_promtool
async def test_promtool_takes_the_alarms_and_each_rings_when_it_should() -> None:
    checked("check", "rules", "--lint-fatal", "rules.yml")
    checked("test", "rules", "rules_test.yml")


@needs_promtool
async def test_promtool_takes_the_scrape_of_every_service_and_the_configuration(
    mesh: DemoMesh, tmp_path: Path
) -> None:
    config = tmp_path / "prometheus.yml"
    config.write_text(json.dumps(configuration(mesh.processes.mesh)))
    checked("check", "config", str(config))
    targets = json.loads(config.read_text())["scrape_configs"][0]["static_configs"]
    assert {each["labels"]["service"] for each in targets} == set(SERVICES)


async def test_a_program_that_is_not_a_mesh_is_one_sentence(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "tools/observe.py", "--state-dir", str(tmp_path / "none")],
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (
        2,
        "No mesh runs here: start one with `make up`, in another terminal.\n",
    )
