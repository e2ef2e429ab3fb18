"""Periodic work of every service: an unexpected error costs one round, not all later ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.fast import bans, grants
from services.fast.bans import WarmBans
from services.fast.dispatch_tables import sweep
from services.fast.grants import GrantKeeper
from services.slow.dominance import Dominance
from services.slow.limits import LimitEnforcer
from snavio.clock import SystemClock
from snavio.host.parts import Parts
from snavio.ports.coordination import PermitReturn
from snavio.replication.poller import Poller
from snavio.rpc import renewal
from snavio.rpc.renewal import Renewal
from snavio.telemetry import journal_uploader
from snavio.telemetry.journal import Journal
from snavio.telemetry.journal_uploader import JournalUploader
from snavio.v1.slow_pb2 import BanReport
from tests.support.panics import panicking

PATIENCE_S = 30.0


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.01)


class Surprise(Exception):
    """An unexpected exception."""


async def test_a_pull_goes_on_after_an_answer_that_nobody_could_foresee() -> None:
    calls = 0

    async def refresh() -> None:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise Surprise

    pull = Poller("rules", refresh, clock=SystemClock(), interval_s=0.01)
    await pull.start(within_s=PATIENCE_S)
    first = pull.read_mono_ns
    try:
        await until(lambda: calls > 3)
        await until(lambda: pull.read_mono_ns != first)
    finally:
        await pull.stop()


async def test_a_renewal_tries_again_after_whatever_went_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "FIRST_PAUSE_S", 0.01)
    tries = 0

    async def certify(*_given: Any) -> Any:
        raise AssertionError("not reached")

    async def fail() -> None:
        nonlocal tries
        tries += 1
        raise Surprise

    renewing = Renewal(tmp_path, certify, clock=SystemClock())
    monkeypatch.setattr(renewing, "renew_if_due", fail)
    renewing.start()
    try:
        await until(lambda: tries > 2)
    finally:
        await renewing.stop()


class Broken:
    """A channel, or a dispatch, of which every use raises; it counts them."""

    def __init__(self) -> None:
        self.uses = 0

    async def call(self, *_given: Any, **_named: Any) -> Any:
        self.uses += 1
        raise Surprise

    def needs(self, **_named: Any) -> Any:
        self.uses += 1
        raise Surprise

    def give_up(self, **_named: Any) -> list[Any]:
        return []


async def test_permits_are_asked_for_again_after_a_surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "FAILED_PAUSE_SECONDS", 0.0)
    broken: Any = Broken()
    keeper = GrantKeeper(dispatch=broken, slow=broken, clock=SystemClock(), instance="fast-0", pause_s=0.0)
    keeper.start()
    try:
        for times in (1, 2):
            keeper.thirsty()
            await until(lambda times=times: broken.uses >= times)  # type: ignore[misc]
        assert keeper.counters()["failed"] >= 1
    finally:
        await keeper.stop()


async def test_bans_are_reported_again_after_a_surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bans, "PAUSE_SECONDS", 0.0)
    broken: Any = Broken()
    told = WarmBans(slow=broken, clock=SystemClock(), instance="fast-0", record=lambda _: None)
    told.start()
    try:
        for times in (1, 2):
            told._reports.append(BanReport(source="acme/big"))
            told._sends.nudge()
            await until(lambda times=times: broken.uses >= times)  # type: ignore[misc]
        await until(lambda: told.counters()["lost"] == 2)
    finally:
        await told.stop()


async def test_fast_goes_on_sweeping_after_a_panic() -> None:
    class Sweeping:
        sweeps = 0

        def sweep(self, **_named: Any) -> None:
            self.sweeps += 1
            if self.sweeps in (1, 2):
                panicking()

    dispatch: Any = Sweeping()
    parts = Parts()
    parts.every(0.001, "upkeep", sweep(dispatch, SystemClock()))
    try:
        await until(lambda: dispatch.sweeps > 3)
    finally:
        await parts.stop()


async def test_a_journal_is_carried_again_after_whatever_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_uploader, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(journal_uploader, "LONGEST_PAUSE_S", 0.001)
    carried = 0

    async def deliver() -> None:
        nonlocal carried
        carried += 1
        if carried in (1, 2):
            panicking()
        await asyncio.Event().wait()

    relay: Any = None
    carrying = JournalUploader(Journal(), relay=relay, instance="fast-0", epoch=1, clock=SystemClock())
    monkeypatch.setattr(carrying, "_carry", deliver)
    carrying.start()
    try:
        await until(lambda: carried > 2)
    finally:
        monkeypatch.setattr(journal_uploader, "LAST_FLUSH_SECONDS", 0.01)
        await carrying.stop()


async def test_permits_are_given_back_after_a_panic() -> None:
    class Store:
        given: list[Any]

        def __init__(self) -> None:
            self.given = []

        async def give_back(self, batch: Any) -> None:
            self.given.append(batch)
            if len(self.given) == 1:
                panicking()

    store: Any = Store()
    clock = SystemClock()
    limits = LimitEnforcer(store=store, dominance=Dominance(clock=clock), clock=clock, timeout_ms=1000)
    limits.start()
    try:
        for times in (1, 2):
            limits._returns.append(PermitReturn(("a", "b"), 1000, 1, 1))
            limits._giving_back.nudge()
            await until(lambda times=times: len(store.given) >= times)  # type: ignore[misc]
    finally:
        await limits.stop()
