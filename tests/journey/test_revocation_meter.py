"""The canary on a real mesh: rights are revoked while it sends, and what it measures is kept."""

from __future__ import annotations

import os
from pathlib import Path

from snavio.clock import SystemClock
from snavio.domain.directory import Profile
from snavio.launch.revocation_meter import RevocationMeter, document, keep, last
from tests.support.mesh import demo_mesh

ROUNDS = 20 if os.environ.get("SNAVIO_FULL") else 2


async def test_last_accepted_after_a_revocation_is_within_the_profiles_bound(tmp_path: Path) -> None:
    async with demo_mesh(tmp_path) as mesh:
        meter = RevocationMeter(
            mesh.processes.mesh,
            operator_certificates=mesh.certificates("operator-admin"),
            clock=SystemClock(),
        )
        critical, sync = await meter.measure([Profile.CRITICAL, Profile.SYNC], rounds=ROUNDS)
        assert critical.kept, critical
        # Read at the moment of every dispatch: not one is accepted after the revocation was durable.
        assert sync.seconds == (0.0,) * ROUNDS
        measured = document([critical, sync], at_unix_ns=1)
        keep(tmp_path, measured)
        assert last(tmp_path) == measured
        (again,) = await meter.measure([Profile.SYNC], rounds=1)
        assert again.max == 0.0
    assert last(tmp_path / "nowhere") is None
