"""Counting verdicts per batch."""

from __future__ import annotations

from snavio.domain.verdict import Verdict
from snavio.telemetry.tally import VerdictCounts

DELIVERED, DENIED = bytes([Verdict.DELIVERED]), bytes([Verdict.ACL_DENY])


def test_nothing_was_counted_yet() -> None:
    assert VerdictCounts().read() == {}


def test_batches_add_up_per_reason() -> None:
    tally = VerdictCounts()
    tally.add(DELIVERED * 1000)
    tally.add(DELIVERED * 3 + DENIED * 2)
    tally.add(b"")
    assert tally.read() == {"delivered": 1003, "acl-deny": 2}


def test_a_verdict_of_a_newer_mesh_is_counted_under_its_number() -> None:
    tally = VerdictCounts()
    tally.add(b"\xfa")
    assert tally.read() == {"verdict-250": 1}
