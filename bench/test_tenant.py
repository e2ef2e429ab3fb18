"""A tenant on a machine of its own: from the invitation to the first delivered command, and a long list of routes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.targets import SHORT, Targets
from tests.integration.test_join import Machine, invitation
from tests.support.terminal import configured, running

REPEATS = 2 if SHORT else 5
TARGETS = 2 if SHORT else 10
ROUTES = 1000
"""Of each target."""


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("operator")
    configured(folder)
    with running(folder) as up:
        up.drain()
        yield Machine(folder)


def newcomer(folder: Path, name: str) -> Machine:
    folder = folder / name
    folder.mkdir()
    return Machine(folder)


def test_from_the_invitation_to_a_delivered_command(
    benchmark: Any, operator: Machine, tmp_path: Path
) -> None:
    seconds: list[float] = []

    def repeat() -> None:
        tenant = f"shop-{len(seconds)}"
        text = invitation(operator, tenant, "--contact", "ops@shop.example", "--principal", "ci")
        machine = newcomer(tmp_path, tenant)
        began = time.perf_counter()
        machine.told("join", "-", given=text)
        machine.run("init", "--service", "web", "--target", f"{tenant}-bot", "--command", "notify-user")
        machine.told("register", "-f", "service.toml")
        sent = machine.told("send", f"{tenant}-bot", "notify-user", "-p", "hello", "--as", "web")
        seconds.append(time.perf_counter() - began)
        assert sent["outcomes"] == {"delivered": 1}

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1)
    targets = Targets()
    targets.at_most(
        "four commands from an invitation to the first delivered command",
        seconds,
        ceiling=60.0,
        unit="s",
        note="join, init, register, send, a process each",
    )
    targets.require()


def test_ten_thousand_routes_are_listed(benchmark: Any, operator: Machine, tmp_path: Path) -> None:
    text = invitation(operator, "many", "--contact", "ops@many.example", "--principal", "ci")
    machine = newcomer(tmp_path, "many")
    machine.told("join", "-", given=text)
    for number in range(TARGETS):
        target = f"many-bot-{number}"
        for part in range(2):
            head = 'tenant = "many"\n' + (f'target = [{{ name = "{target}" }}]\n' if not part else "")
            routes = [
                f'[[route]]\ntarget = "{target}"\ncommand = "do-{part}-{each}"\n' for each in range(ROUTES // 2)
            ]
            (machine.folder / "routes.toml").write_text(head + "".join(routes))
            machine.told("register", "-f", "routes.toml")
    seconds: list[float] = []

    def repeat() -> None:
        began = time.perf_counter()
        told = machine.told("route", "ls")
        seconds.append(time.perf_counter() - began)
        assert len(told["routes"]) == TARGETS * ROUTES

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1)
    targets = Targets()
    targets.at_most("snavio route ls of 10,000 routes", seconds, ceiling=1.0, unit="s", note="a process each")
    targets.require()
