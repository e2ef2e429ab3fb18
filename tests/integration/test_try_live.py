"""`try` tells what a command would meet in the running mesh; rights that end, and limits of one source, hold there."""

from __future__ import annotations

import asyncio
import re
import time
import uuid

import pytest

from snavio.admin.directory import DirectoryClient
from snavio.domain.directory import AclEntry, DedupeMode, Limit, Profile, ProfileLimit, Route, SourceQuota
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest
from snavio.v1 import registry_pb2 as reg
from tests.support.mesh import SOURCE, TARGET, TENANT, DemoMesh

RIVAL = f"{TENANT}/bot"
SMALL, OWN, LENT, BY_PROFILE, STRICT = "small", "own", "lent", "by-profile", "strict"
# Aligned intervals: of these, one does not end soon.
INTERVAL_S = next(s for s in (86_400, 86_000, 50_000, 40_000) if s - time.time() % s > 1800)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def client(mesh: DemoMesh) -> DirectoryClient:
    return DirectoryClient(mesh.addresses["registry"], certificates=mesh.certificates("operator-admin"))


async def furnish(mesh: DemoMesh) -> None:
    async with client(mesh) as directory:
        await directory.apply(
            [
                ProfileLimit(TARGET, Profile.CRITICAL, Limit(2, INTERVAL_S)),
                Route(TARGET, SMALL, limit=Limit(3, INTERVAL_S)),
                Route(TARGET, BY_PROFILE, profile=Profile.CRITICAL),
                *(Route(TARGET, name) for name in (OWN, LENT)),
                *(
                    AclEntry(source, TARGET, name)
                    for source in (SOURCE, RIVAL)
                    for name in (SMALL, OWN, BY_PROFILE)
                ),
                SourceQuota(SOURCE, TARGET, OWN, 2, INTERVAL_S, always=True),
            ]
        )


async def gates(mesh: DemoMesh, name: str, *, clock: int = 0) -> tuple[reg.CheckResponse, dict[str, str]]:
    async with client(mesh) as directory:
        check = await directory.check(SOURCE, TARGET, name, caller_unix_ns=clock)
    return check, {gate.gate: gate.detail for gate in check.gate}


async def send(mesh: DemoMesh, name: str, count: int, *, service: str = "billing") -> list[Verdict]:
    async with mesh.producer(service) as producer:
        outcomes = await producer.send_batch([(TARGET, name, b"x")] * count, timeout_s=3.0)
    return sorted(outcome.verdict for outcome in outcomes)


async def test_permits_are_told_and_asking_takes_none(mesh: DemoMesh) -> None:
    async with asyncio.timeout(60):
        # Slow connects to the mailbox by itself; until then nobody knows.
        while "can be reached" not in (await gates(mesh, SMALL))[1]["queue"]:
            await asyncio.sleep(0.05)
    for _ in range(3):
        check, told = await gates(mesh, SMALL)
        assert check.passes, told
        assert told["permits"] == "3 of 3 left in this interval for all sources together."
        assert told["queue"].startswith("The queue can be reached: 0 wait, ")
    assert await send(mesh, SMALL, 4) == [Verdict.DELIVERED] * 3 + [Verdict.RATE_LIMIT_EXCEEDED]
    check, told = await gates(mesh, SMALL)
    assert (check.passes, check.failing_gate, check.verdict) == (False, "permits", "rate-limit-exceeded")
    assert told["permits"].startswith("0 of 3 left")


async def test_a_source_that_nobody_has_banned_is_held_to_its_own_limit_and_others_are_not(
    mesh: DemoMesh,
) -> None:
    check, told = await gates(mesh, OWN)
    assert told["source-limit"] == f"2 in {INTERVAL_S} s from {SOURCE} alone."
    assert told["permits"] == f"2 of 2 left in this interval for {SOURCE} alone."
    assert await send(mesh, OWN, 5) == [Verdict.DELIVERED] * 2 + [Verdict.RATE_LIMIT_EXCEEDED] * 3
    assert await send(mesh, OWN, 5, service="bot") == [Verdict.DELIVERED] * 5
    check, _ = await gates(mesh, OWN)
    assert (check.failing_gate, check.verdict) == ("permits", "rate-limit-exceeded")


async def test_a_limit_by_profile_holds_for_a_route_without_one_of_its_own(mesh: DemoMesh) -> None:
    _, told = await gates(mesh, BY_PROFILE)
    assert "the target's for this profile" in told["limit"]
    assert await send(mesh, BY_PROFILE, 3) == [Verdict.DELIVERED] * 2 + [Verdict.RATE_LIMIT_EXCEEDED]
    async with client(mesh) as directory:
        gone = ProfileLimit(TARGET, Profile.CRITICAL, Limit(2, INTERVAL_S))
        await directory.apply([], deleted=[gone])
    _, told = await gates(mesh, BY_PROFILE)
    assert told["limit"] == "No limit."


async def test_a_clock_that_is_wrong_is_told(mesh: DemoMesh) -> None:
    for off_s, passes in ((0, True), (50, True), (-600, False), (600, False)):
        check, told = await gates(
            mesh, LENT if not passes else "notify-user", clock=time.time_ns() + off_s * 10**9
        )
        assert ("more than" in told["clock"]) is not passes
        assert check.passes is passes


async def test_a_right_ends_by_itself_everywhere_and_stays_ended_after_a_restart(mesh: DemoMesh) -> None:
    async with client(mesh) as directory:
        await directory.grant(SOURCE, TARGET, LENT, ttl_seconds=3)
        [right] = [one for one in (await directory.access(source=SOURCE)).acl if one.name == LENT]
    began = time.time_ns()
    assert 0 < right.expires_unix_ns - began <= 3 * 10**9
    verdicts: list[Verdict] = []
    async with asyncio.timeout(60):
        while not verdicts or verdicts[-1] is Verdict.DELIVERED:
            asked = time.time_ns()
            verdicts += await send(mesh, LENT, 1)
            if verdicts[-1] is Verdict.DELIVERED:
                # Sent before the end, whenever the answer came.
                assert asked < right.expires_unix_ns
    assert verdicts[0] is Verdict.DELIVERED
    assert verdicts[-1] is Verdict.ACL_DENY
    async with client(mesh) as directory:
        assert not [one for one in (await directory.access(source=SOURCE)).acl if one.name == LENT]
    name = f"fast-{uuid.uuid4().hex[:6]}"
    await mesh.another("fast", name)
    check, _ = await gates(mesh, LENT)
    assert (check.passes, check.failing_gate) == (False, "acl")
    async with client(mesh) as directory:
        before = await directory.access_at(TARGET, LENT, began + 10**9)
        now = await directory.access_at(TARGET, LENT, 0)
    assert [access.acl.source for access in before.access] == [SOURCE]
    assert not now.access


async def test_the_answers_name_a_freeze_and_its_end(mesh: DemoMesh) -> None:
    ban = reg.Ban(
        list=reg.BAN_LIST_FROZEN, target=TARGET, name=OWN, until_unix_ns=time.time_ns() + 3600 * 10**9
    )
    async with client(mesh) as directory:
        await directory._call("SetBan", reg.SetBanRequest(ban=ban), reg.WriteResponse)
    async with asyncio.timeout(60):
        while (await send(mesh, OWN, 1, service="bot")) != [Verdict.FROZEN]:
            pass
    async with mesh.producer("bot") as producer:
        outcome = await producer.send(TARGET, OWN, b"x")
    assert outcome.reason == "frozen"
    assert "It ends at" in outcome.detail
    check, _ = await gates(mesh, OWN)
    assert (check.failing_gate, check.verdict) == ("lists", "frozen")


async def test_what_a_strict_id_would_meet_is_told(mesh: DemoMesh) -> None:
    async with client(mesh) as directory, mesh.producer() as producer:
        await directory.apply(
            [Route(TARGET, STRICT, dedupe_mode=DedupeMode.STRICT), AclEntry(SOURCE, TARGET, STRICT)]
        )
        command_id = str(uuid.uuid4())

        async def asked(command_id: str = command_id) -> dict[str, str]:
            check = await directory.check(SOURCE, TARGET, STRICT, command_id=command_id)
            assert check.passes
            return {gate.gate: gate.detail for gate in check.gate}

        assert (await asked(""))["id"].startswith("Strict: each id is delivered once.")
        assert (await asked())["id"] == "The id is new."
        assert (await asked())["id"] == "The id is new.", "asking uses no id up"
        assert (await producer.send(TARGET, STRICT, b"x", command_id=command_id)).delivered
        again = await producer.send(TARGET, STRICT, b"x", command_id=command_id)
        assert again.verdict is Verdict.DUPLICATE
        told = (await asked())["id"]
        assert (
            told
            == f"The id was used: the same command is a duplicate, another one a conflict. {again.detail}"
        )
        assert (await asked(str(uuid.uuid4())))["id"] == "The id is new."
        for none in ("x", command_id.upper(), command_id[:-1]):
            with pytest.raises(BadRequest):
                await asked(none)


async def test_keys_and_queue_are_told_in_numbers_to_those_who_may_know(mesh: DemoMesh) -> None:
    _, told = await gates(mesh, "notify-user")
    assert told["keyset"].startswith("The source signs with hmac-v1, asked for last at ")
    waiting, room = re.fullmatch(
        r"The queue can be reached: ([\d,]+) wait, ([\d,]+) fit\.", told["queue"]
    ).groups()  # type: ignore[union-attr]
    await send(mesh, "notify-user", 3)
    _, after = await gates(mesh, "notify-user")
    assert after["queue"] == (
        f"The queue can be reached: {int(waiting.replace(',', '')) + 3:,} wait, "
        f"{int(room.replace(',', '')) - 3:,} fit."
    )


async def test_a_mailbox_that_is_away_is_told_as_that(mesh: DemoMesh) -> None:
    mesh.processes.kill("mailbox")
    try:
        check, told = await gates(mesh, "notify-user")
        assert (check.passes, check.failing_gate, check.verdict) == (False, "queue", "delivery-failure")
        assert told["queue"].startswith("The queue cannot be reached: ")
    finally:
        await asyncio.to_thread(mesh.processes.restart, "mailbox")
    async with asyncio.timeout(60):
        while not (await gates(mesh, "notify-user"))[0].passes:
            await asyncio.sleep(0.05)
