"""Signer's own gate, filled from its store at start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from services.signer.certificates.issue_order import IssueOrder
from services.signer.certificates.revocation import MAX_PAGE, CertificateRevocation
from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.clock import ManualClock
from snavio.host.shares import ShareLimit
from snavio.ports.certificates import CertificateLedger
from snavio.ports.keystore import Revocation
from snavio.rpc.certificate_gate import CertificateGate
from tests.support.keystores import KEY


async def test_revoked_certificates_behind_a_page_with_forgotten_ones_are_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    now = clock.unix_ns()
    store = await SealedKeyStore.open(tmp_path / "keys", key=KEY, create=True)
    try:
        ends = [now + 1, *[now + 10**12] * (MAX_PAGE + 1)]
        await store.revoke_all(
            [Revocation(f"{number:x}", now, end, "admin", "") for number, end in enumerate(ends, 1)],
            now_ns=now,
        )
        clock.advance(seconds=1)

        gate = CertificateGate(clock=clock)
        revoking = CertificateRevocation(
            store=store,
            ledger=cast("CertificateLedger", None),
            gate=gate,
            clock=clock,
            order=IssueOrder(clock, latest_ns=0),
            trust_domain="snavio.local",
            turn=asyncio.Lock(),
            limit=ShareLimit(10, 10),
        )
        await revoking.start()
        assert gate.revoked(f"{MAX_PAGE + 2:x}")
        assert gate.revoked("2")
        assert not gate.revoked("1")
    finally:
        await store.close()
