"""The output of `snavio status --tenants`: every service's bounds, tenants close to their share first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from snavio.cli.render import show
from snavio.cli.share_views import share_blocks
from snavio.clock import ManualClock
from snavio.host.introspection import Introspection
from snavio.host.shares import BOUNDS, MESH, ShareLimit, Shares
from snavio.launch.share_readings import read_shares
from snavio.v1.introspection_pb2 import StatusRequest


def telling(service: str, *shares: Shares) -> Introspection:
    introspection = Introspection(service, clock=ManualClock(0))
    introspection.shares(*shares)
    return introspection


async def told(introspection: Introspection, tenant: str = "") -> Any:
    return await introspection._status(StatusRequest(tenant=tenant), SimpleNamespace())  # type: ignore[arg-type]


class Mesh:
    """In place of Probes."""

    def __init__(self, **services: Introspection | None) -> None:
        self._services = services

    async def statuses(self, *, tenant: str = "") -> dict[str, Any]:
        return {
            name: None if each is None else await told(each, tenant) for name, each in self._services.items()
        }


async def reading(tenant: str = "") -> Any:
    calls = Shares("calls", ShareLimit(1000, 100, 50))
    calls.take("acme", 5)
    calls.take(MESH, 60)
    topics = Shares("topics", ShareLimit(100, 10))
    topics.take("globex", 10)
    mesh: Any = Mesh(shield=telling("shield", calls), mailbox=telling("mailbox", topics), relay=None)
    return await read_shares(mesh, tenant=tenant)


async def test_who_is_next_to_its_share_comes_first_and_a_silent_service_is_named() -> None:
    read = await reading()
    assert [(each.tenant, each.bound, each.used, each.share) for each in read.holdings] == [
        ("globex", "topics", 10, 10),
        (MESH, "calls", 60, 1000),
        ("acme", "calls", 5, 100),
    ]
    assert read.silent == ("relay",)
    assert [each.tenant for each in (await reading("acme")).holdings] == ["acme"]


def shown(read: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    show(read.document(), *share_blocks(read), json=False)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


async def test_people_and_machines_are_told_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    read = await reading()
    lines = shown(read, capsys)
    assert lines[:2] == ["tenant service bound used share part", "globex mailbox topics 10 10 100.0%"]
    assert "(mesh) shield calls 60 1,000 6.0%" in lines
    assert "shield calls 65 1,000 50 100 0" in lines
    assert read.document()["holdings"][0]["tenant"] == "globex"


async def test_large_bounds_fit_into_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, the numbers could not be compared."""
    every = [Shares(name, ShareLimit(64 << 30, 16 << 30, 6 << 30)) for name in BOUNDS]
    for shares in every:
        shares.take("a-tenant-of-usual-length", 999_950_000)
    mesh: Any = Mesh(registry=telling("registry", *every))
    monkeypatch.setattr(
        "snavio.cli.render.console", lambda: Console(force_terminal=True, width=80, no_color=True)
    )
    lines = shown(await read_shares(mesh), capsys)
    for name in BOUNDS:
        assert any(f"registry {name} 1 G 68.7 G 6.44 G 17.2 G 0" in line for line in lines), lines


async def test_tenant_that_holds_nothing_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(await reading("initech"), capsys)[0] == "initech holds nothing of any bound."


async def test_a_reading_tells_at_most_a_hundred_holders_of_a_bound_those_with_most() -> None:
    shares = Shares("streams", ShareLimit(100_000, 1000))
    for number in range(150):
        shares.take(f"t{number}", number + 1)
    telling_all = telling("shield", shares)
    status = await told(telling_all)
    assert [holder.used for holder in status.share[0].holder] == list(range(150, 50, -1))
    assert {"share_used.streams"} <= {gauge.name for gauge in status.gauge}
    # A tenant that is asked for is always shown, however little it holds.
    mesh: Any = Mesh(shield=telling_all)
    assert [(each.tenant, each.used) for each in (await read_shares(mesh, tenant="t0")).holdings] == [
        ("t0", 1)
    ]
