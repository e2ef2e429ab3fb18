"""The denylist is complete or not confirmed: pages, a full gate, and a Signer whose pages do not end."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from snavio.clock import SystemClock
from snavio.errors import IntegrityError, Unavailable
from snavio.replication.denylist import Denylist, denylist_poller
from snavio.rpc.certificate_gate import CertificateGate
from snavio.v1.signer_pb2 import DenylistRequest, DenylistResponse, RevokedSubject

PAGE = 3


@dataclass(slots=True)
class Signer:
    """Answers with pages of `PAGE`; every serial is its version."""

    revoked: int
    asked: list[int] = field(default_factory=list)
    fails_at: int | None = None
    endless: bool = False

    async def call(
        self, _method: str, request: DenylistRequest, _type: type[DenylistResponse], *, timeout_s: float
    ) -> DenylistResponse:
        assert timeout_s > 0
        since = request.since_version
        self.asked.append(since)
        if since == self.fails_at:
            raise Unavailable("Signer is away.")
        last = min(since + PAGE, self.revoked)
        serials = [format(version, "x") for version in range(since + 1, last + 1)]
        return DenylistResponse(version=last, serial=serials, more=last < self.revoked or self.endless)


def following(signer: Signer, gate: CertificateGate) -> Denylist:
    return denylist_poller(signer, gate, clock=SystemClock(), interval_s=1.0, stale_s=3600)  # type: ignore[arg-type]


def known(gate: CertificateGate, upto: int) -> list[int]:
    return [version for version in range(1, upto + 1) if gate.revoked(format(version, "x"))]


async def test_every_page_is_read_before_the_list_counts_as_heard() -> None:
    signer, gate = Signer(revoked=8), CertificateGate(clock=SystemClock())
    denylist = following(signer, gate)
    await denylist.start(within_s=5)
    assert signer.asked == [0, 3, 6]
    assert known(gate, 8) == list(range(1, 9))
    assert gate._fresh()
    await denylist.stop()


async def test_a_list_whose_last_page_is_missing_is_not_heard_and_goes_on_where_it_was() -> None:
    signer, gate = Signer(revoked=8, fails_at=6), CertificateGate(clock=SystemClock())
    denylist = following(signer, gate)
    with pytest.raises(Unavailable):
        await denylist._refresh()
    assert not gate._fresh()
    # What was read is refused already.
    assert known(gate, 8) == list(range(1, 7))
    signer.fails_at = None
    await denylist._refresh()
    assert signer.asked == [0, 3, 6, 6]
    assert gate._fresh()


async def test_a_full_gate_is_replaced_by_the_whole_list_and_not_by_its_first_page() -> None:
    signer, gate = Signer(revoked=8), CertificateGate(clock=SystemClock(), max_revoked=9)
    # Of certificates that have expired since.
    gate.revoke(["a1", "a2", "a3"])
    denylist = following(signer, gate)
    await denylist._refresh()
    assert known(gate, 8) == list(range(1, 9))
    assert not gate.revoked("a1")
    # It goes on from there.
    signer.revoked = 9
    await denylist._refresh()
    assert signer.asked[-1] == 8
    assert gate.revoked("9")


async def test_pages_that_do_not_come_to_an_end_are_no_list() -> None:
    gate = CertificateGate(clock=SystemClock())
    denylist = following(Signer(revoked=4, endless=True), gate)
    with pytest.raises(IntegrityError):
        await denylist._refresh()
    assert not gate._fresh()


async def test_signer_of_before_sends_serials_alone_and_one_of_now_says_until_when() -> None:
    class Both:
        async def call(self, *_: object, **__: object) -> DenylistResponse:
            subject = RevokedSubject(subject="spiffe://d/operator/ada", issued_before_unix_ns=7)
            return DenylistResponse(
                version=1,
                serial=["a1"],
                revoked=[subject, RevokedSubject(subject="a1", issued_before_unix_ns=7)],
            )

    gate = CertificateGate(clock=SystemClock())
    denylist = following(Both(), gate)  # type: ignore[arg-type]
    await denylist._refresh()
    assert gate.covers(["spiffe://d/operator/ada"], 6)
    assert gate.covers(["a1"], 0)
    assert not gate.covers(["spiffe://d/operator/ada", "a1"], 7)
