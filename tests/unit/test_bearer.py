"""The capability provider: when it asks Signer, when it does not, and its use of the answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from snavio.clock import ManualClock
from snavio.errors import NotAllowed, SnavioError, Unauthenticated, Unavailable
from snavio.rpc.capability import HELPED, CapabilityProvider, CapabilityScope, HeldCapability
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles


def refused(reason: str = "cap-revoked", signer: str = "") -> Unauthenticated:
    return Unauthenticated("no", reason=reason, signer=signer)


@dataclass
class Signer:
    """Answers with consecutive numbers."""

    asked: list[str] = field(default_factory=list)
    failure: SnavioError | None = None

    async def ask(self, _wanted: CapabilityScope, told: str) -> HeldCapability:
        self.asked.append(told)
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return HeldCapability(f"cap-{len(self.asked)}", 90)


@pytest.fixture
def signer() -> Signer:
    return Signer()


@pytest.fixture
def capability_provider(signer: Signer, clock: ManualClock) -> CapabilityProvider:
    return CapabilityProvider(CapabilityScope("acme/x", ("recv",)), signer.ask, clock=clock)


async def test_nothing_is_asked_for_until_somebody_refuses(
    capability_provider: CapabilityProvider, signer: Signer
) -> None:
    assert capability_provider.present() is None and capability_provider.generation() == 0
    await capability_provider.replace(refused("cap-required", "signer:1"), None)
    assert (capability_provider.present(), capability_provider.generation(), signer.asked) == (
        "cap-1",
        1,
        ["signer:1"],
    )


async def test_many_refusals_at_once_ask_once(
    capability_provider: CapabilityProvider, signer: Signer
) -> None:
    await asyncio.gather(*(capability_provider.replace(refused("cap-required"), None) for _ in range(50)))
    assert (capability_provider.present(), len(signer.asked)) == ("cap-1", 1)


async def test_a_refusal_of_the_one_before_asks_nobody(
    capability_provider: CapabilityProvider, signer: Signer
) -> None:
    await capability_provider.replace(refused("cap-required"), None)
    await capability_provider.replace(refused(), None)
    assert len(signer.asked) == 1


async def test_what_was_refused_a_moment_after_it_was_made_is_not_asked_for_again(
    capability_provider: CapabilityProvider, signer: Signer
) -> None:
    await capability_provider.replace(refused("cap-required"), None)
    with pytest.raises(Unavailable) as later:
        await capability_provider.replace(refused("cap-unknown-root"), "cap-1")
    assert later.value.reason == "cap-unknown-root" and len(signer.asked) == 1


async def test_what_signer_says_comes_out_and_the_old_one_is_kept(
    capability_provider: CapabilityProvider, signer: Signer
) -> None:
    signer.failure = NotAllowed("barred", reason="holder-barred")
    with pytest.raises(NotAllowed):
        await capability_provider.replace(refused("cap-required"), None)
    assert capability_provider.present() is None


@pytest.mark.parametrize("reason", ["certificate-revoked", "cap-malformed", "cap-forged", "cap-holder"])
def test_another_capability_does_not_help_everywhere(
    capability_provider: CapabilityProvider, reason: str
) -> None:
    assert not capability_provider.helps(refused(reason))
    assert all(capability_provider.helps(refused(each)) for each in HELPED)


def test_a_fixed_one_is_presented_and_never_replaced(signer: Signer, clock: ManualClock) -> None:
    fixed = CapabilityProvider(CapabilityScope("acme/x", ()), signer.ask, clock=clock, fixed="mine")
    assert fixed.present() == "mine" and not fixed.helps(refused())


async def test_it_is_renewed_in_the_background_when_a_third_is_left(
    capability_provider: CapabilityProvider, signer: Signer, clock: ManualClock
) -> None:
    await capability_provider.replace(refused("cap-required"), None)
    clock.advance(seconds=59.9)
    assert capability_provider.present() == "cap-1" and len(signer.asked) == 1
    clock.advance(seconds=0.1)
    assert capability_provider.present() == "cap-1"
    for _ in range(5):
        await asyncio.sleep(0)
    assert (capability_provider.present(), capability_provider.generation()) == ("cap-2", 2)


async def test_a_signer_that_is_away_is_asked_again_but_not_all_the_time(
    capability_provider: CapabilityProvider, signer: Signer, clock: ManualClock
) -> None:
    await capability_provider.replace(refused("cap-required"), None)
    clock.advance(seconds=60)
    signer.failure = Unavailable("away")
    for _ in range(20):
        assert capability_provider.present() == "cap-1"
        await asyncio.sleep(0)
    assert len(signer.asked) == 2
    clock.advance(seconds=5)
    signer.failure = None
    capability_provider.present()
    for _ in range(5):
        await asyncio.sleep(0)
    assert capability_provider.generation() == 2
    await capability_provider.close()


async def test_a_channel_that_closes_ends_the_renewal_under_way(
    capability_provider: CapabilityProvider, signer: Signer, clock: ManualClock, tmp_path: Path
) -> None:
    await capability_provider.replace(refused("cap-required"), None)
    clock.advance(seconds=60)
    capability_provider.present()
    await asyncio.sleep(0)
    assert len(signer.asked) == 2, "a renewal is under way"
    channel = MeshChannel(
        "127.0.0.1:1",
        files=CertificateFiles.in_folder(tmp_path),
        service="mailbox",
        capability_provider=capability_provider,
    )
    await channel.close()
    assert "renew capability" not in [task.get_name() for task in asyncio.all_tasks()]


def test_a_capability_is_not_shown_by_accident() -> None:
    assert "secret" not in repr(HeldCapability("secret", 1))
