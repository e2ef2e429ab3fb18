"""What every `CertificateLedger` promises, and what the SQLite one does when it is damaged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snavio.adapters.embedded import sqlite_certificates
from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.sqlite_certificates import KEPT_AFTER_EXPIRY_NS, SqliteCertificateLedger
from snavio.errors import IntegrityError, Saturated, StateError
from snavio.ports.certificates import CertificateLedger, IssuedCertificate

HOUR = 3600 * 10**9
NOW = 1_700_000_000 * 10**9


def issued(
    serial: str, *, parent: str = "", at: int = NOW, life: int = HOUR, **more: str
) -> IssuedCertificate:
    fields = {"spiffe_id": "billing", "issued_to": "ci", "delegate": "", **more}
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


async def test_descendants_are_found_at_every_remove_and_through_the_expired(
    ledger: CertificateLedger,
) -> None:
    await ledger.record(issued("a"))
    await ledger.record(issued("b", parent="a", life=1))
    await ledger.record(issued("c", parent="b"))
    await ledger.record(issued("d", parent="c"))
    await ledger.record(issued("other"))
    assert set(await ledger.descendants(["a"], now_ns=NOW + 2)) == {"c", "d"}
    assert set(await ledger.descendants(["c"], now_ns=NOW + 2)) == {"d"}
    assert await ledger.descendants([], now_ns=NOW) == ()


async def test_chain_does_not_tear_when_its_middle_is_forgotten(ledger: CertificateLedger) -> None:
    await ledger.record(issued("root", life=30 * 24 * HOUR))
    at, parent = NOW, "root"
    # Three days of renewals every forty minutes; an expired one is forgotten after a day.
    for number in range(110):
        at += 40 * 60 * 10**9
        serial = f"c{number}"
        await ledger.record(issued(serial, parent=parent, at=at))
        parent = serial
    assert await ledger.find("c0") is None
    assert parent in await ledger.descendants(["root"], now_ns=at)
    found = [await ledger.find(f"c{number}") for number in range(110)]
    kept = [certificate for certificate in found if certificate is not None]
    assert kept[0].parent == "root"
    assert [certificate.parent for certificate in kept[1:]] == [
        certificate.serial for certificate in kept[:-1]
    ]


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


async def test_full_ledger_refuses(ledger: CertificateLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_certificates, "MAX_CERTIFICATES", 2)
    monkeypatch.setattr(sqlite_certificates, "MAX_BARRED", 1)
    await ledger.record(issued("a"))
    await ledger.record(issued("b"))
    with pytest.raises(Saturated):
        await ledger.record(issued("c"))
    await ledger.bar("a", at_ns=NOW, actor="", reason="")
    await ledger.bar("a", at_ns=NOW, actor="", reason="")
    with pytest.raises(Saturated):
        await ledger.bar("b", at_ns=NOW, actor="", reason="")


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
