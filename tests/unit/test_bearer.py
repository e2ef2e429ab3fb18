"""When a bearer asks Signer, when it does not, and what it does with the answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from snavio.clock import ManualClock
from snavio.errors import NotAllowed, SnavioError, Unauthenticated, Unavailable
from snavio.transport.bearer import HELPED, Bearer, Given, Wanted
from snavio.transport.channel import MeshChannel
from snavio.transport.credentials import CertificateFiles


def refused(reason: str = "cap-revoked", signer: str = "") -> Unauthenticated:
    return Unauthenticated("no", reason=reason, signer=signer)


@dataclass
class Signer:
    """Answers with numbers."""

    asked: list[str] = field(default_factory=list)
    failure: SnavioError | None = None

    async def ask(self, _wanted: Wanted, told: str) -> Given:
        self.asked.append(told)
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return Given(f"cap-{len(self.asked)}", 90)


@pytest.fixture
def signer() -> Signer:
    return Signer()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bearer(signer: Signer, clock: ManualClock) -> Bearer:
    return Bearer(Wanted("acme/x", ("recv",)), signer.ask, clock=clock)


async def test_nothing_is_asked_for_until_somebody_refuses(bearer: Bearer, signer: Signer) -> None:
    assert bearer.present() is None and bearer.generation() == 0
    await bearer.replace(refused("cap-required", "signer:1"), None)
    assert (bearer.present(), bearer.generation(), signer.asked) == ("cap-1", 1, ["signer:1"])


async def test_many_refusals_at_once_ask_once(bearer: Bearer, signer: Signer) -> None:
    await asyncio.gather(*(bearer.replace(refused("cap-required"), None) for _ in range(50)))
    assert (bearer.present(), len(signer.asked)) == ("cap-1", 1)


async def test_a_refusal_of_the_one_before_asks_nobody(bearer: Bearer, signer: Signer) -> None:
    await bearer.replace(refused("cap-required"), None)
    await bearer.replace(refused(), None)
    assert len(signer.asked) == 1


async def test_what_was_refused_a_moment_after_it_was_made_is_not_asked_for_again(
    bearer: Bearer, signer: Signer
) -> None:
    await bearer.replace(refused("cap-required"), None)
    with pytest.raises(Unavailable) as later:
        await bearer.replace(refused("cap-unknown-root"), "cap-1")
    assert later.value.reason == "cap-unknown-root" and len(signer.asked) == 1


async def test_what_signer_says_comes_out_and_the_old_one_is_kept(bearer: Bearer, signer: Signer) -> None:
    signer.failure = NotAllowed("barred", reason="holder-barred")
    with pytest.raises(NotAllowed):
        await bearer.replace(refused("cap-required"), None)
    assert bearer.present() is None


@pytest.mark.parametrize("reason", ["certificate-revoked", "cap-malformed", "cap-forged", "cap-holder"])
def test_another_capability_does_not_help_everywhere(bearer: Bearer, reason: str) -> None:
    assert not bearer.helps(refused(reason))
    assert all(bearer.helps(refused(each)) for each in HELPED)


def test_a_fixed_one_is_presented_and_never_replaced(signer: Signer, clock: ManualClock) -> None:
    fixed = Bearer(Wanted("acme/x", ()), signer.ask, clock=clock, fixed="mine")
    assert fixed.present() == "mine" and not fixed.helps(refused())


async def test_it_is_renewed_in_the_background_when_a_third_is_left(
    bearer: Bearer, signer: Signer, clock: ManualClock
) -> None:
    await bearer.replace(refused("cap-required"), None)
    clock.advance(seconds=59.9)
    assert bearer.present() == "cap-1" and len(signer.asked) == 1
    clock.advance(seconds=0.1)
    assert bearer.present() == "cap-1"
    for _ in range(5):
        await asyncio.sleep(0)
    assert (bearer.present(), bearer.generation()) == ("cap-2", 2)


async def test_a_signer_that_is_away_is_asked_again_but_not_all_the_time(
    bearer: Bearer, signer: Signer, clock: ManualClock
) -> None:
    await bearer.replace(refused("cap-required"), None)
    clock.advance(seconds=60)
    signer.failure = Unavailable("away")
    for _ in range(20):
        assert bearer.present() == "cap-1"
        await asyncio.sleep(0)
    assert len(signer.asked) == 2
    clock.advance(seconds=5)
    signer.failure = None
    bearer.present()
    for _ in range(5):
        await asyncio.sleep(0)
    assert bearer.generation() == 2
    await bearer.close()


async def test_a_channel_that_closes_ends_the_renewal_under_way(
    bearer: Bearer, signer: Signer, clock: ManualClock, tmp_path: Path
) -> None:
    await bearer.replace(refused("cap-required"), None)
    clock.advance(seconds=60)
    bearer.present()
    await asyncio.sleep(0)
    assert len(signer.asked) == 2, "a renewal is under way"
    channel = MeshChannel(
        "127.0.0.1:1", files=CertificateFiles.in_folder(tmp_path), service="mailbox", bearer=bearer
    )
    await channel.close()
    assert "renew capability" not in [task.get_name() for task in asyncio.all_tasks()]


def test_a_capability_is_not_shown_by_accident() -> None:
    assert "secret" not in repr(Given("secret", 1))
