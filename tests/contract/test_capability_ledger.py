"""The promises of every `CapabilityLedger`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from snavio.adapters.embedded import sqlite_capabilities as adapter
from snavio.adapters.embedded.checksums import connect
from snavio.domain.capability_root import RootLine, revoke_through, rotate_line
from snavio.errors import Conflict, IntegrityError, Saturated, StateError
from snavio.host.shares import ShareLimit
from snavio.ports.capabilities import CapabilityAuditEntry, CapabilityLedger, IssuedCapability

# What is remembered of all tenants; the full count is for `SNAVIO_FULL=1`.
REMEMBERED = 200_000 if os.environ.get("SNAVIO_FULL") == "1" else 400
HOUR_NS = 3600 * 1_000_000_000
NOW = 1_790_000_000_000_000_000
AUDIT = CapabilityAuditEntry(NOW, "spiffe://snavio.local/operator/ada", "drill")
BOT = "spiffe://snavio.local/tenant/acme/service/bot"


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[CapabilityLedger]:
    opened = await adapter.SqliteCapabilityLedger.open(tmp_path / "capabilities.db")
    yield opened
    await opened.close()


def issued(number: int, *, tenant: str = "acme", expires_ns: int = NOW + HOUR_NS) -> IssuedCapability:
    return IssuedCapability(
        cap_id=f"{number:032x}",
        realm=f"{tenant}/billing",
        operations="recv,ack",
        holder=BOT.replace("acme", tenant),
        tenant=tenant,
        issued_to=BOT.replace("acme", tenant),
        root="00112233445566ff",
        root_version=1,
        issued_ns=NOW,
        expires_ns=expires_ns,
    )


async def test_what_was_recorded_is_found_and_listed_oldest_first(ledger: CapabilityLedger) -> None:
    some = [issued(1), issued(2, tenant="beta"), issued(3)]
    for one in some:
        await ledger.record(one)
    assert await ledger.find(some[1].cap_id) == some[1]
    assert await ledger.find("0" * 32) is None
    assert await ledger.living(now_ns=NOW, limit=10) == tuple((one, False) for one in some)
    assert await ledger.living(now_ns=NOW, tenant="acme", limit=10) == ((some[0], False), (some[2], False))
    assert await ledger.living(now_ns=NOW, realm="beta/", limit=10) == ((some[1], False),)
    assert await ledger.living(now_ns=NOW, holder=BOT, after=some[0].cap_id, limit=10) == ((some[2], False),)
    assert await ledger.living(now_ns=NOW, limit=1) == ((some[0], False),)
    assert await ledger.living(now_ns=NOW + HOUR_NS, limit=10) == ()


async def test_a_realm_is_no_pattern_of_sql(ledger: CapabilityLedger) -> None:
    await ledger.record(issued(1))
    assert await ledger.living(now_ns=NOW, realm="%", limit=10) == ()
    assert await ledger.living(now_ns=NOW, realm="acm_", limit=10) == ()


async def test_I_15_endings_are_told_by_version_each_once(ledger: CapabilityLedger) -> None:
    first = await ledger.end_capability("a" * 32, forget_ns=NOW + HOUR_NS, audit=AUDIT)
    second = await ledger.end_holder(BOT, until_ms=7, forget_ns=NOW + HOUR_NS, bar=False, audit=AUDIT)
    line, third = await ledger.update_line(
        "acme/billing", lambda before: rotate_line(before, now_ns=NOW, overlap_ns=5), audit=AUDIT
    )
    assert first < second < third
    whole = await ledger.endings_since(0, epoch=0, now_ns=NOW, limit=100)
    assert ([one.subject for one in whole.capabilities], whole.lines, whole.version) == (
        ["a" * 32],
        (line,),
        third,
    )
    assert [(one.subject, one.issued_until_ms) for one in whole.holders] == [(BOT, 7)]
    rest = await ledger.endings_since(first, epoch=whole.epoch, now_ns=NOW, limit=100)
    assert (rest.capabilities, len(rest.holders), len(rest.lines)) == ((), 1, 1)
    nothing = await ledger.endings_since(third, epoch=whole.epoch, now_ns=NOW, limit=100)
    assert not nothing.capabilities and not nothing.holders and not nothing.lines and not nothing.more


async def test_I_15_a_reader_of_another_epoch_or_ahead_starts_again(ledger: CapabilityLedger) -> None:
    version = await ledger.end_capability("a" * 32, forget_ns=NOW + HOUR_NS, audit=AUDIT)
    epoch = (await ledger.endings_since(0, epoch=0, now_ns=NOW, limit=1)).epoch
    for since, of in ((version, epoch + 1), (version + 1, epoch)):
        assert len((await ledger.endings_since(since, epoch=of, now_ns=NOW, limit=9)).capabilities) == 1


async def test_endings_come_in_pages(ledger: CapabilityLedger) -> None:
    for number in range(5):
        await ledger.end_capability(f"{number:032x}", forget_ns=NOW + HOUR_NS, audit=AUDIT)
    seen: list[str] = []
    version, epoch, more = 0, 0, True
    while more:
        part = await ledger.endings_since(version, epoch=epoch, now_ns=NOW, limit=2)
        seen += [one.subject for one in part.capabilities]
        version, epoch, more = part.version, part.epoch, part.more
    assert seen == [f"{number:032x}" for number in range(5)]


async def test_an_ending_is_forgotten_when_what_it_ended_has_expired_everywhere(
    ledger: CapabilityLedger,
) -> None:
    await ledger.end_capability("a" * 32, forget_ns=NOW + 1, audit=AUDIT)
    later = NOW + 1 + adapter.SKEW_NS
    assert len((await ledger.endings_since(0, epoch=0, now_ns=later - 1, limit=9)).capabilities) == 1
    assert (await ledger.endings_since(0, epoch=0, now_ns=later, limit=9)).capabilities == ()


async def test_the_list_says_what_was_revoked_in_whatever_way(ledger: CapabilityLedger) -> None:
    by_id, by_holder, by_root, alive = (issued(1), issued(2), issued(3), issued(4))
    by_holder = replace(by_holder, holder=BOT + "2")
    by_root = replace(by_root, realm="acme/orders")
    for one in (by_id, by_holder, by_root, alive):
        await ledger.record(one)
    await ledger.end_capability(by_id.cap_id, forget_ns=by_id.expires_ns, audit=AUDIT)
    until_ms = NOW // 1_000_000
    await ledger.end_holder(BOT + "2", until_ms=until_ms, forget_ns=NOW + HOUR_NS, bar=False, audit=AUDIT)
    await ledger.update_line("acme/orders", lambda line: revoke_through(line, 1), audit=AUDIT)
    listed = {one.cap_id: ended for one, ended in await ledger.living(now_ns=NOW, limit=10)}
    assert listed == {by_id.cap_id: True, by_holder.cap_id: True, by_root.cap_id: True, alive.cap_id: False}


async def test_a_barred_holder_stays_so_until_it_is_restored(ledger: CapabilityLedger) -> None:
    await ledger.end_holder("tenant:acme", until_ms=1, forget_ns=NOW, bar=True, audit=AUDIT)
    await ledger.end_holder("tenant:acme", until_ms=2, forget_ns=NOW, bar=False, audit=AUDIT)
    assert await ledger.barred({"tenant:acme", "tenant:beta"}) == {"tenant:acme"}
    assert await ledger.restore_holder("tenant:acme", operator=True)
    assert not await ledger.restore_holder("tenant:acme", operator=True)
    assert await ledger.barred({"tenant:acme"}) == frozenset()


async def test_I_15_a_line_that_is_refused_is_not_written(ledger: CapabilityLedger) -> None:
    def refuse(_line: RootLine) -> RootLine:
        raise Conflict("no")

    with pytest.raises(Conflict):
        await ledger.update_line("acme/billing", refuse, audit=AUDIT)
    assert await ledger.line("acme/billing") == RootLine("acme/billing")


async def test_one_tenant_cannot_use_up_the_room_of_others(
    ledger: CapabilityLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "MAX_PER_TENANT", 3)
    for number in range(3):
        await ledger.record(issued(number))
    with pytest.raises(Saturated):
        await ledger.record(issued(4))
    await ledger.record(issued(5, tenant="beta"))
    # As soon as his own have expired, there is room again.
    later = NOW + HOUR_NS + adapter.SKEW_NS + 1
    await ledger.record(replace(issued(6, expires_ns=later + HOUR_NS), issued_ns=later))


@pytest.mark.timeout(1200)
async def test_one_tenants_revocations_fill_its_share_and_nobody_elses(tmp_path: Path) -> None:
    limit = ShareLimit.of(REMEMBERED, tenant_percent=25, reserve_percent=10)
    ledger = await adapter.SqliteCapabilityLedger.open(tmp_path / "capabilities.db", limit=limit)
    acme, beta = replace(AUDIT, tenant="acme"), replace(AUDIT, tenant="beta")
    for number in range(limit.per_tenant):
        await ledger.end_capability(f"{number:032x}", forget_ns=NOW + HOUR_NS, audit=acme)
    # The same again takes nothing more; another, a line or a bar does.
    await ledger.end_capability(f"{1:032x}", forget_ns=NOW + HOUR_NS, audit=acme)
    for attempt in (
        ledger.end_capability("a" * 32, forget_ns=NOW + HOUR_NS, audit=acme),
        ledger.end_holder(BOT, until_ms=1, forget_ns=NOW, bar=True, audit=acme),
        ledger.update_line("acme/x", lambda line: line, audit=acme),
    ):
        with pytest.raises(Saturated):
            await attempt
    assert await ledger.barred({BOT}) == frozenset()
    await ledger.end_capability("b" * 32, forget_ns=NOW + HOUR_NS, audit=beta)
    await ledger.end_holder(BOT, until_ms=1, forget_ns=NOW + HOUR_NS, bar=True, audit=AUDIT)
    assert ledger.shares.holders() == {"acme": limit.per_tenant, "beta": 1, "": 2}
    # Expired endings make room for their own tenant.
    later = replace(acme, at_ns=NOW + HOUR_NS + adapter.SKEW_NS + 1)
    await ledger.end_capability("c" * 32, forget_ns=later.at_ns + HOUR_NS, audit=later)
    assert ledger.shares.held("acme") < limit.per_tenant
    await ledger.close()


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "capabilities.db"
    first = await adapter.SqliteCapabilityLedger.open(path)
    await first.record(issued(1))
    await first.end_capability("a" * 32, forget_ns=NOW + HOUR_NS, audit=AUDIT)
    await first.update_line("acme/x", lambda line: rotate_line(line, now_ns=NOW, overlap_ns=5), audit=AUDIT)
    before = await first.endings_since(0, epoch=0, now_ns=NOW, limit=9)
    with pytest.raises(StateError):
        await adapter.SqliteCapabilityLedger.open(path)
    await first.close()
    again = await adapter.SqliteCapabilityLedger.open(path)
    assert await again.endings_since(0, epoch=0, now_ns=NOW, limit=9) == before
    assert (await again.line("acme/x")).version == 2
    await again.close()


@pytest.mark.parametrize("change", ["UPDATE issued SET realm = '*'", "UPDATE endings SET value = '[9,1,[]]'"])
async def test_a_record_that_was_changed_is_noticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "capabilities.db"
    ledger = await adapter.SqliteCapabilityLedger.open(path)
    await ledger.record(issued(1))
    await ledger.update_line("acme/x", lambda line: rotate_line(line, now_ns=NOW, overlap_ns=5), audit=AUDIT)
    await ledger.close()
    connection = connect(path)
    connection.execute(change)
    connection.close()
    ledger = await adapter.SqliteCapabilityLedger.open(path)
    try:
        with pytest.raises(IntegrityError):
            await ledger.find(issued(1).cap_id)
            await ledger.line("acme/x")
    finally:
        await ledger.close()
