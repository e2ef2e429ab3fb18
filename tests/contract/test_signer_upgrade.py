"""Signer's stores as commit 15c7f7f wrote them: they open, and revocations and bars in them stay in force.

`tests/fixtures/signer-15c7f7f` was made by that commit: `ci` and its renewal, a service assumed and renewed through it
and one through `left`, the service `bot` whose first certificate was revoked after a renewal, the barred principal
`gone`; two capabilities of which one was revoked, the holder `left` barred by an operator, one realm rotated.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from services.signer.bootstrap import prepare
from services.signer.certificates.issue_order import IssueOrder
from services.signer.certificates.revocation import CertificateRevocation
from services.signer.settings import SignerSettings
from snavio import pki
from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.adapters.embedded.sealing import SealingKey
from snavio.adapters.embedded.sqlite_capabilities import SqliteCapabilityLedger
from snavio.adapters.embedded.sqlite_certificates import SqliteCertificateLedger
from snavio.clock import ManualClock
from snavio.config import MeshSettings
from snavio.domain.identity import Identity, IdentityKind, parse_identity
from snavio.domain.lineage import ALWAYS
from snavio.domain.verdict import Verdict
from snavio.errors import NotAllowed
from snavio.host.shares import ShareLimit
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.peer import Peer

OLD = Path(__file__).resolve().parents[1] / "fixtures" / "signer-15c7f7f"
FACTS: dict[str, Any] = json.loads((OLD / "facts.json").read_text())
NOW = FACTS["now_ns"]


def spiffe(path: str) -> str:
    return f"spiffe://snavio.local/tenant/acme/{path}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(OLD, tmp_path / "signer")


async def test_certificates_know_their_chains_and_counts(folder: Path) -> None:
    for _ in range(2):
        ledger = await SqliteCertificateLedger.open(folder / "certificates.db")
        found = {name: await ledger.find(FACTS[name]) for name in ("ci", "service", "renewed", "from_stolen")}
        ci, service, renewed, bot = (found[name] for name in found)
        assert ci is not None and service is not None and renewed is not None and bot is not None
        assert not ci.marked
        assert ci.root == ci.parent
        assert (service.root, service.via) == (service.serial, ci.root)
        assert (renewed.root, renewed.via) == (service.serial, ci.root)
        assert bot.root == FACTS["stolen"]
        covered = await ledger.living(now_ns=NOW, chain=ci.root, unmarked=True, limit=10)
        assert {each.serial for each in covered} == {ci.root, ci.serial, service.serial, renewed.serial}
        assert ledger.shares.held("acme") == 8
        assert await ledger.barred([spiffe("principal/gone"), spiffe("principal/ci")]) == {
            spiffe("principal/gone")
        }
        for known in ("ci", "left", "gone"):
            assert await ledger.ever_known(spiffe(f"principal/{known}"))
        assert not await ledger.ever_known(spiffe("principal/new"))
        await ledger.close()


async def test_revoked_serials_stay_revoked_whenever_they_were_issued(folder: Path) -> None:
    key = SealingKey((folder / "sealing.key").read_bytes())
    store = await SealedKeyStore.open(folder / "keys.sealed", key=key)
    page = await store.revocations_since(0, now_ns=NOW, limit=10)
    assert [each.entry for each in page.revocations] == [
        (FACTS["stolen"], ALWAYS),
        (FACTS["from_stolen"], ALWAYS),
    ]
    await store.close()


async def test_certificates_of_before_are_revoked_though_they_carry_no_chain(folder: Path) -> None:
    clock = ManualClock(NOW)
    key = SealingKey((folder / "sealing.key").read_bytes())
    ledger = await SqliteCertificateLedger.open(folder / "certificates.db")
    store = await SealedKeyStore.open(folder / "keys.sealed", key=key)
    gate = CertificateGate(clock=clock)
    revoking = CertificateRevocation(
        store=store,
        ledger=ledger,
        gate=gate,
        clock=clock,
        order=await IssueOrder.load(clock, ledger=ledger, store=store),
        trust_domain="snavio.local",
        turn=asyncio.Lock(),
        limit=ShareLimit(10, 5, 1),
    )
    await revoking.start()

    def refused(name: str, path: str) -> bool:
        identity = parse_identity(spiffe(path))
        return gate.check(Peer(identity, FACTS[name], 2**63 - 1)) is Verdict.CERTIFICATE_REVOKED

    operator = Identity("snavio.local", IdentityKind.OPERATOR, "admin")
    assert refused("from_stolen", "service/bot")
    assert not refused("through_left", "service/billing")
    await revoking.revoke_identity(spiffe_id=spiffe("principal/left"), reason="", caller=operator)
    assert refused("through_left", "service/billing")
    assert not refused("renewed", "service/billing")
    ended = await revoking.revoke(serial=FACTS["renewed"], reason="", caller=operator)
    assert set(ended.serials) == {FACTS["service"], FACTS["renewed"]}
    assert refused("renewed", "service/billing") and refused("service", "service/billing")
    assert not refused("ci", "principal/ci")
    await revoking.revoke(serial=FACTS["ci"], reason="", caller=operator)
    assert refused("ci", "principal/ci")
    await ledger.close()
    await store.close()


async def test_capabilities_endings_and_bars_are_there_and_bars_are_the_operators(folder: Path) -> None:
    left = spiffe("principal/left")
    for _ in range(2):
        ledger = await SqliteCapabilityLedger.open(folder / "capabilities.db")
        states = {each.cap_id: ended for each, ended in await ledger.living(now_ns=NOW, limit=10)}
        assert states == {FACTS["cap_revoked"]: True, FACTS["cap_good"]: False}
        assert (await ledger.line("acme/orders")).version == 2
        assert await ledger.barred({left}) == {left}
        # The tenant ended one and rotated a realm; the operator ended a holder and barred it.
        assert ledger.shares.holders() == {"acme": 2, "": 2}
        with pytest.raises(NotAllowed):
            await ledger.restore_holder(left, operator=False)
        await ledger.close()


async def test_certificates_of_the_first_release_are_made_anew_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Go program can connect to no service that shows one; see `snavio.pki.LINEAGE_OID`."""
    mesh = MeshSettings(state_dir=tmp_path)
    with monkeypatch.context() as release:
        release.setattr(pki, "LINEAGE_OID", pki.LINEAGE_OID_0_1)
        first = await prepare(mesh, SignerSettings(), clock=ManualClock(NOW))
    assert {"shield", "operator-admin"} <= set(first)
    assert set(await prepare(mesh, SignerSettings(), clock=ManualClock(NOW))) == set(first)
    assert await prepare(mesh, SignerSettings(), clock=ManualClock(NOW)) == []
