"""An acknowledged end of a key takes effect with Shield's next pull, whatever the producer signs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.shield.key_cache import CALL_SECONDS, LONGEST_KEY_PAUSE_S, KeyCache
from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1 import signer_pb2 as wire
from tests.support.control import ADMIN, Control, control_plane
from tests.support.judging import AUDIENCE, SOURCE, admitting, judged
from tests.support.neighbours import eventually


class CountingChannel(MeshChannel):
    """Records the pulls of keys that began, and those that were answered."""

    begun = 0
    answered = 0

    async def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        counts = method.endswith("/KeysetChanges")
        self.begun += counts
        number = self.begun
        answer = await super().call(method, *arguments, **named)
        if counts:
            self.answered = number
        return answer


class Door:
    """Shield's judgement with keys from the real pull."""

    def __init__(self, control: Control) -> None:
        files = CertificateFiles.in_folder(control.mesh.certificates("shield"))
        self.control = control
        self.clock = SystemClock()
        self.signer = CountingChannel(control.mesh.signer, files=files, service="signer")
        self.registry = MeshChannel(control.mesh.registry, files=files, service="registry")
        self.admission = admitting()
        self.held = KeyCache(
            admission=self.admission,
            signer=self.signer,
            clock=self.clock,
            interval_s=0.05,
            stale_ms=180_000,
            holder=AUDIENCE,
        )

    async def next_pull(self) -> None:
        """Wait until a pull that began after this call has been applied."""
        # Pulls do not overlap: when one has begun after that, all of it has been applied.
        wanted = self.signer.begun + 1
        await eventually(lambda: self.signer.begun > wanted)

    def judge(self, key: wire.KeyVersion) -> Verdict:
        return judged(self.admission, key, now_unix_ns=self.clock.unix_ns())

    async def keys(self) -> list[wire.KeyVersion]:
        answer = await self.control.sign(
            "shield", "KeysetChanges", wire.KeysetChangesRequest(), wire.KeysetChangesResponse
        )
        return list(answer.keyset[0].version)

    async def tell(self, method: str, request: Any) -> wire.KeysetStatus:
        status: wire.KeysetStatus = await self.control.sign(ADMIN, method, request, wire.KeysetStatus)
        return status


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with control_plane(tmp_path, registry=True) as control:
        door = Door(control)
        await door.tell("CreateKeyset", wire.CreateKeysetRequest(source=SOURCE))
        await door.held.start(within_s=5.0)
        yield door
        await door.held.stop()
        await door.signer.close()
        await door.registry.close()


async def test_revoked_key_is_refused_after_the_next_pull_and_its_successor_let_in(door: Door) -> None:
    (old,) = await door.keys()
    assert door.judge(old) is Verdict.UNDECIDED
    await door.tell("RevokeKey", wire.RevokeKeyRequest(source=SOURCE, key_version="hmac-v1"))
    await door.next_pull()
    assert door.judge(old) is Verdict.KEY_REVOKED
    assert door.judge((await door.keys())[1]) is Verdict.UNDECIDED


async def test_versions_below_the_minimum_are_refused_after_the_next_pull(door: Door) -> None:
    await door.tell("RotateKeyset", wire.RotateKeysetRequest(source=SOURCE))
    await door.next_pull()
    old, new = await door.keys()
    assert door.judge(old) is door.judge(new) is Verdict.UNDECIDED
    await door.control.spread_keys()
    await door.tell("SetMinimumKey", wire.SetMinimumKeyRequest(source=SOURCE, key_version="hmac-v2"))
    await door.next_pull()
    assert door.judge(old) is Verdict.KEY_REVOKED
    assert door.judge(new) is Verdict.UNDECIDED


async def test_rotated_key_is_let_in_before_any_producer_may_sign_with_it(door: Door) -> None:
    await door.tell("RotateKeyset", wire.RotateKeysetRequest(source=SOURCE))
    await door.next_pull()
    _, new = await door.keys()
    assert new.primary_from_unix_ns > door.control.clock.unix_ns()
    assert door.judge(new) is Verdict.UNDECIDED


async def test_no_key_signs_before_every_shield_has_it(door: Door) -> None:
    """A second, known Shield that is late would refuse the new version."""
    assert door.control.signer is not None
    distribution = door.control.signer.keys.rollout
    assert distribution is not None
    late = wire.KeysetChangesRequest(holder="shield-1:9", good_for_ms=180_000)
    await door.control.sign("shield", "KeysetChanges", late, wire.KeysetChangesResponse)
    await door.tell("RotateKeyset", wire.RotateKeysetRequest(source=SOURCE))
    await door.next_pull()
    await door.next_pull()
    await door.control.spread_keys()

    async def described() -> wire.KeysetStatus:
        request = wire.DescribeKeysetsRequest(source=SOURCE)
        answer = await door.control.sign(ADMIN, "DescribeKeysets", request, wire.DescribeKeysetsResponse)
        status: wire.KeysetStatus = answer.keyset[0]
        return status

    waiting = await described()
    assert waiting.primary == "hmac-v1"
    assert {holder.name: holder.up_to_date for holder in waiting.holder} == {
        AUDIENCE: True,
        "shield-1:9": False,
    }
    page = await door.control.sign(
        "shield", "KeysetChanges", wire.KeysetChangesRequest(), wire.KeysetChangesResponse
    )
    late.since_version, late.store_epoch = page.version, page.store_epoch
    await door.control.sign("shield", "KeysetChanges", late, wire.KeysetChangesResponse)
    await distribution.turn()
    assert (await described()).primary == "hmac-v2"


async def test_shield_that_ends_is_not_waited_for(door: Door) -> None:
    await door.held.stop()
    await door.tell("RotateKeyset", wire.RotateKeysetRequest(source=SOURCE))
    await door.control.spread_keys()
    request = wire.DescribeKeysetsRequest(source=SOURCE)
    answer = await door.control.sign(ADMIN, "DescribeKeysets", request, wire.DescribeKeysetsResponse)
    assert (answer.keyset[0].primary, list(answer.keyset[0].holder)) == ("hmac-v2", [])


@pytest.mark.parametrize("holder", ["x" * 129, "a\nb"])
async def test_name_of_a_shield_that_could_not_be_one_is_refused(door: Door, holder: str) -> None:
    request = wire.KeysetChangesRequest(holder=holder, good_for_ms=1)
    with pytest.raises(BadRequest):
        await door.control.sign("shield", "KeysetChanges", request, wire.KeysetChangesResponse)


async def test_use_of_keys_reaches_signer(door: Door) -> None:
    (old,) = await door.keys()
    for _ in range(5):
        door.judge(old)

    async def counted() -> int:
        request = wire.DescribeKeysetsRequest(source=SOURCE)
        answer = await door.control.sign(ADMIN, "DescribeKeysets", request, wire.DescribeKeysetsResponse)
        count: int = answer.keyset[0].use[0].last_hour
        return count

    for _ in range(200):
        if await counted() == 5:
            break
        await door.next_pull()
    assert await counted() == 5


def test_slow_pulls_of_routes_do_not_slow_the_news_of_a_revocation() -> None:
    # One pause, one call that fails after its two seconds, one more pull: still within five seconds.
    assert LONGEST_KEY_PAUSE_S <= 1.0
    assert 2 * LONGEST_KEY_PAUSE_S + CALL_SECONDS < 5.0
