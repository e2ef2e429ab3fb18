"""The promises of every `CertificateLedger`, and the SQLite one when it is damaged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from snavio.adapters.embedded import sqlite_certificates
from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.sqlite_certificates import KEPT_AFTER_EXPIRY_NS, SqliteCertificateLedger
from snavio.errors import IntegrityError, Saturated, StateError
from snavio.host.shares import ShareLimit
from snavio.ports.certificates import CertificateLedger, IssuedCertificate

HOUR = 3600 * 10**9
NOW = 1_700_000_000 * 10**9


def issued(
    serial: str, *, parent: str = "", at: int = NOW, life: int = HOUR, **more: Any
) -> IssuedCertificate:
    fields: dict[str, Any] = {"spiffe_id": "billing", "issued_to": "ci", "delegate": "", **more}
    return IssuedCertificate(serial=serial, parent=parent, issued_ns=at, not_after_ns=at + life, **fields)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "signer" / "certificates.db"


@pytest.fixture(params=["sqlite"])
async def ledger(path: Path) -> AsyncIterator[CertificateLedger]:
    opened = await SqliteCertificateLedger.open(path)
    yield opened
    await opened.close()


async def test_what_was_recorded_is_found(ledger: CertificateLedger) -> None:
    one = issued("a1", delegate="ci")
    await ledger.record(one)
    assert await ledger.find("a1") == one
    assert await ledger.find("a2") is None


async def test_living_are_those_that_have_not_expired_in_order(ledger: CertificateLedger) -> None:
    for number in range(5):
        await ledger.record(
            issued(f"f{number}", at=NOW + number, spiffe_id="even" if number % 2 == 0 else "odd")
        )
    now = NOW + HOUR + 1
    assert [c.serial for c in await ledger.living(now_ns=now, limit=10)] == ["f2", "f3", "f4"]
    assert [c.serial for c in await ledger.living(now_ns=now, spiffe_id="even", limit=10)] == ["f2", "f4"]
    assert [c.serial for c in await ledger.living(now_ns=now, after="f2", limit=1)] == ["f3"]


async def test_living_through_a_delegate_are_his_alone(ledger: CertificateLedger) -> None:
    await ledger.record(issued("a1", delegate="ci"))
    await ledger.record(issued("a2", delegate="cd"))
    await ledger.record(issued("a3"))
    assert [c.serial for c in await ledger.living(now_ns=NOW, delegate="ci", limit=10)] == ["a1"]


async def test_living_of_a_chain_are_those_with_its_root_and_those_begun_with_it(
    ledger: CertificateLedger,
) -> None:
    await ledger.record(issued("a", root="a"))
    await ledger.record(issued("b", root="a", life=1))
    await ledger.record(issued("c", root="a"))
    await ledger.record(issued("s", root="s", via="a", spiffe_id="other"))
    await ledger.record(issued("elsewhere", root="elsewhere"))
    assert [c.serial for c in await ledger.living(now_ns=NOW + 2, chain="a", limit=10)] == ["a", "c", "s"]
    assert await ledger.living(now_ns=NOW, chain="a", unmarked=True, limit=10) == ()


async def test_chain_does_not_tear_when_its_beginning_is_forgotten(ledger: CertificateLedger) -> None:
    at = NOW
    # Three days of renewals every forty minutes; an expired one is forgotten after a day.
    for number in range(110):
        await ledger.record(issued(f"c{number}", root="c0", at=at))
        at += 40 * 60 * 10**9
    assert await ledger.find("c0") is None
    assert "c109" in {c.serial for c in await ledger.living(now_ns=at - HOUR, chain="c0", limit=200)}


async def test_latest_time_of_issue_is_known(ledger: CertificateLedger) -> None:
    assert await ledger.latest_ns() == 0
    await ledger.record(issued("a", at=NOW + 5))
    await ledger.record(issued("b", at=NOW))
    assert await ledger.latest_ns() == NOW + 5


async def test_principal_is_known_for_ever_and_others_are_not(ledger: CertificateLedger) -> None:
    ci, service = "spiffe://d/tenant/acme/principal/ci", "spiffe://d/tenant/acme/service/ci"
    await ledger.record(issued("a", spiffe_id=ci))
    await ledger.record(issued("b", spiffe_id=service))
    await ledger.forget(["a", "b"])
    assert await ledger.ever_known(ci)
    assert not await ledger.ever_known(service)


async def test_expired_is_forgotten_after_a_day_and_not_before(ledger: CertificateLedger) -> None:
    await ledger.record(issued("old"))
    await ledger.record(issued("x1", at=NOW + HOUR + KEPT_AFTER_EXPIRY_NS))
    assert await ledger.find("old") is not None
    await ledger.record(issued("x2", at=NOW + HOUR + KEPT_AFTER_EXPIRY_NS + 1))
    assert await ledger.find("old") is None


async def test_barred_stays_barred_until_lifted(ledger: CertificateLedger) -> None:
    for _ in range(2):
        await ledger.bar("a", at_ns=NOW, actor="admin", reason="test")
    assert await ledger.barred(["a", "b"]) == {"a"}
    assert await ledger.unbar("a")
    assert not await ledger.unbar("a")
    assert await ledger.barred(["a"]) == frozenset()


async def test_everything_is_there_after_reopening(path: Path) -> None:
    first = await SqliteCertificateLedger.open(path)
    await first.record(issued("a"))
    await first.bar("b", at_ns=NOW, actor="admin", reason="")
    await first.close()
    second = await SqliteCertificateLedger.open(path)
    assert await second.find("a") == issued("a")
    assert await second.barred(["b"]) == {"b"}
    await second.close()


def of(tenant: str, name: str = "billing") -> str:
    return f"spiffe://d/tenant/{tenant}/service/{name}"


async def test_one_tenant_or_identity_fills_its_part_and_the_mesh_has_the_reserve(path: Path) -> None:
    ledger = await SqliteCertificateLedger.open(path, limit=ShareLimit(10, 5, 2), per_identity=3)
    for number in range(3):
        await ledger.record(issued(f"a{number}", spiffe_id=of("acme")))
    with pytest.raises(Saturated) as refusal:
        await ledger.record(issued("b", spiffe_id=of("acme")))
    assert refusal.value.retry_after_ms
    for number in range(2):
        await ledger.record(issued(f"c{number}", spiffe_id=of("acme", "bot")))
    with pytest.raises(Saturated):
        await ledger.record(issued("d", spiffe_id=of("acme", "third")))
    for number in range(3):
        await ledger.record(issued(f"e{number}", spiffe_id=of("rival")))
    with pytest.raises(Saturated):
        await ledger.record(issued("f", spiffe_id=of("third")))
    await ledger.record(issued("0a", spiffe_id="spiffe://d/operator/admin"))
    assert ledger.shares.holders() == {"acme": 5, "rival": 3, "": 1}
    await ledger.close()
    # Counted again at start, and given back when they are let go.
    again = await SqliteCertificateLedger.open(path, limit=ShareLimit(10, 5, 2), per_identity=3)
    with pytest.raises(Saturated):
        await again.record(issued("d", spiffe_id=of("acme")))
    assert [each.serial for each in await again.oldest(tenant="acme", limit=2)] == ["a0", "a1"]
    await again.forget(["a0", "a1", "unknown"])
    await again.record(issued("d", spiffe_id=of("acme")))
    assert again.shares.held("acme") == 4
    await again.close()


async def test_certificate_that_could_not_be_written_takes_no_part(ledger: CertificateLedger) -> None:
    await ledger.record(issued("a"))
    with pytest.raises(Exception, match="UNIQUE"):
        await ledger.record(issued("a"))
    assert ledger.shares.used == 1


async def test_operators_have_the_last_tenth_of_the_bars(
    ledger: CertificateLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_certificates, "MAX_BARRED", 10)
    for number in range(9):
        await ledger.bar(f"a{number}", at_ns=NOW, actor="", reason="", reserve=False)
    with pytest.raises(Saturated):
        await ledger.bar("b", at_ns=NOW, actor="", reason="", reserve=False)
    await ledger.bar("b", at_ns=NOW, actor="", reason="")
    await ledger.bar("b", at_ns=NOW, actor="", reason="")
    with pytest.raises(Saturated):
        await ledger.bar("c", at_ns=NOW, actor="", reason="")


async def test_damaged_record_is_not_believed(path: Path) -> None:
    ledger = await SqliteCertificateLedger.open(path)
    await ledger.record(issued("a"))
    await ledger.close()
    connection = connect(path)
    connection.execute("UPDATE issued SET delegate = 'somebody'")
    connection.close()
    again = await SqliteCertificateLedger.open(path)
    with pytest.raises(IntegrityError):
        await again.find("a")
    await again.close()


async def test_second_owner_is_refused(ledger: CertificateLedger, path: Path) -> None:
    with pytest.raises(StateError) as refusal:
        await SqliteCertificateLedger.open(path)
    assert refusal.value.reason == "store-locked"
