"""Ban proposals over mTLS, under the audit job's own certificate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from services.registry.settings import RegistrySettings
from snavio.admin.bans import JOB_FOLDER, BanClient, Proposal, ProposalAnswer
from snavio.errors import BadRequest, NotAllowed, NotFound, Saturated, SnavioError
from snavio.telemetry.events import AbuseDetected, BanNear, EventJournal
from snavio.v1 import registry_pb2 as wire
from tests.integration.test_registry import acme, changes, grant, resolve, route, service, tenant
from tests.support.control import ADMIN, Control, control_plane

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
SOURCE = "acme/billing"
PING = wire.ResolveKey(source=SOURCE, target="bot", name="Ping")


@dataclass
class Scene:
    control: Control
    job: BanClient
    operator: BanClient
    told: list[AbuseDetected]

    def proposal(self, number: int = 1, **changed: object) -> Proposal:
        now = self.control.clock.unix_ns()
        plain = Proposal(
            proposal_id=f"v1:dominance:{number}",
            policy_version="v1",
            kind="dominance",
            source=SOURCE,
            affected_targets=("bot:Ping",),
            total_violations=7,
            window_start_unix_ns=now - 2 * MINUTE,
            window_end_unix_ns=now - MINUTE,
            ban_applied_until_unix_ns=now + 10 * MINUTE,
            evidence='{"share":0.97}',
            provisional=True,
        )
        return replace(plain, **changed)  # type: ignore[arg-type]

    async def propose(self, proposal: Proposal) -> ProposalAnswer:
        (outcome,) = await self.job.propose([proposal])
        return outcome

    async def banned(self, key: wire.ResolveKey = PING) -> bool:
        (answer,) = (await resolve(self.control, key)).resolution
        return answer.warm_banned


Open = Callable[..., "asyncio.Future[Scene]"]


@pytest.fixture
async def open_scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    told: list[AbuseDetected] = []
    record = EventJournal.record

    def listen(journal: EventJournal, event: object, *, at_unix_ns: int) -> None:
        if isinstance(event, AbuseDetected):
            told.append(event)
        record(journal, event, at_unix_ns=at_unix_ns)  # type: ignore[arg-type]

    monkeypatch.setattr(EventJournal, "record", listen)
    async with AsyncExitStack() as stack:

        async def opened(**settings: object) -> Scene:
            registry = RegistrySettings.model_validate({"write_snapshots": False, **settings})
            control = await stack.enter_async_context(
                control_plane(tmp_path, registry=True, registry_settings=registry)
            )
            await acme(control)
            clients = [
                await stack.enter_async_context(
                    BanClient(control.mesh.registry, certificates=control.mesh.certificates(folder))
                )
                for folder in (JOB_FOLDER, ADMIN)
            ]
            return Scene(control, clients[0], clients[1], told)

        yield opened  # type: ignore[misc]


@pytest.fixture
async def scene(open_scene: Open) -> Scene:
    return await open_scene()


async def test_a_proposal_becomes_a_ban_that_ends_by_itself(scene: Scene) -> None:
    outcome = await scene.propose(scene.proposal())
    until = scene.proposal().ban_applied_until_unix_ns
    assert (outcome.decision, outcome.covers, outcome.until_unix_ns) == ("applied", ("bot:Ping",), until)
    assert await scene.banned()
    scene.control.clock.advance(seconds=600)
    assert not await scene.banned()


async def test_a_full_journal_fails_no_proposal_and_the_event_is_told_with_the_next_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, full = EventJournal.record, True

    def sometimes(journal: EventJournal, event: AbuseDetected, *, at_unix_ns: int) -> None:
        if full and isinstance(event, AbuseDetected):
            raise Saturated("The journal's file is full.", retry_after_ms=1)
        record(journal, event, at_unix_ns=at_unix_ns)

    monkeypatch.setattr(EventJournal, "record", sometimes)
    proposal = scene.proposal()
    assert (await scene.propose(proposal)).decision == "applied"
    assert (await scene.banned(), scene.told) == (True, [])
    full = False
    for _ in range(3):
        assert (await scene.propose(proposal)).decision == "already"
    assert [event.source for event in scene.told] == [SOURCE]


async def test_the_same_proposal_again_changes_nothing_and_tells_nobody(scene: Scene) -> None:
    proposal = scene.proposal()
    await scene.propose(proposal)
    version = await scene.job.version()
    for _ in range(5):
        assert (await scene.propose(proposal)).decision == "already"
    assert await scene.job.version() == version
    assert len(scene.told) == 1


async def test_abuse_is_told_once_per_ban_window_with_all_its_fields(scene: Scene) -> None:
    await scene.propose(scene.proposal(1))
    await scene.propose(scene.proposal(2, affected_targets=("bot",)))
    (told,) = scene.told
    assert (told.source, told.affected_targets, told.total_violations) == (SOURCE, ("bot",), 7)
    assert told.ban_applied_until.endswith("Z")
    scene.control.clock.advance(seconds=601)
    await scene.propose(scene.proposal(3))
    assert len(scene.told) == 2


async def test_an_event_that_a_crash_swallowed_is_told_by_the_next_life(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def died(*_args: object, **_named: object) -> None:
        raise OSError("died here")

    with monkeypatch.context() as crash:
        crash.setattr(EventJournal, "record", died)
        with pytest.raises(SnavioError):
            await scene.propose(scene.proposal())
    assert await scene.banned()
    assert scene.told == []
    await scene.control.stop_registry()
    await scene.control.start_registry()
    assert len(scene.told) == 1
    await scene.control.stop_registry()
    await scene.control.start_registry()
    assert len(scene.told) == 1


async def test_proposal_without_a_target_bans_every_route_of_the_source(scene: Scene) -> None:
    await route(scene.control, name="Pong")
    await grant(scene.control, wire.AclEntry(source=SOURCE, target="bot", name="Pong"))
    outcome = await scene.propose(scene.proposal(kind="invalid-burst", affected_targets=()))
    assert outcome.covers == ()
    for name in ("Ping", "Pong"):
        assert await scene.banned(wire.ResolveKey(source=SOURCE, target="bot", name=name))
    assert not await scene.banned(wire.ResolveKey(source="acme/bot", target="bot", name="Ping"))


async def test_a_whole_target_means_the_routes_that_the_source_may_use(scene: Scene) -> None:
    await route(scene.control, name="Pong")
    outcome = await scene.propose(scene.proposal(affected_targets=("bot",)))
    assert outcome.covers == ("bot:Ping",)


@pytest.mark.parametrize("entry", ["acme/billing", "evil/x, acme/*"])
async def test_allowlisted_source_is_never_banned_by_proposals_nor_by_slow(
    open_scene: Open, entry: str
) -> None:
    scene = await open_scene(never_banned=entry)
    outcome = await scene.propose(scene.proposal())
    assert (outcome.decision, outcome.reason, outcome.final) == ("refused", "allowlisted", True)
    ban = wire.Ban(
        list=wire.BAN_LIST_WARM_BAN,
        source=SOURCE,
        target="bot",
        name="Ping",
        until_unix_ns=scene.proposal().ban_applied_until_unix_ns,
    )
    with pytest.raises(NotAllowed, match="never banned") as refusal:
        await scene.control.write("slow", "SetBan", wire.SetBanRequest(ban=ban))
    assert refusal.value.reason == "allowlisted"
    assert not await scene.banned()
    assert (await scene.operator.explain(SOURCE)).allowlisted
    # An operator's explicit ban is not bound by the allowlist.
    await scene.control.write(ADMIN, "SetBan", wire.SetBanRequest(ban=ban))
    assert await scene.banned()


async def test_cap_of_bans_per_hour_refuses_and_says_when_to_come_again(open_scene: Open) -> None:
    scene = await open_scene(max_bans_per_hour=2)
    outcomes = await scene.job.propose([scene.proposal(number) for number in range(4)])
    assert [outcome.decision for outcome in outcomes] == ["applied", "applied", "refused", "refused"]
    assert (outcomes[3].reason, outcomes[3].final) == ("cap-reached", False)
    scene.control.clock.advance(seconds=outcomes[3].retry_after_ms / 1000 - 1)
    assert (await scene.propose(scene.proposal(3))).reason == "cap-reached"
    scene.control.clock.advance(seconds=1)
    assert (await scene.propose(scene.proposal(3))).decision == "applied"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"source": "acme/nobody"}, "unknown-source"),
        ({"affected_targets": ("bot:Gone",)}, "unknown-target"),
        ({"affected_targets": ("elsewhere",)}, "unknown-target"),
        ({"ban_applied_until_unix_ns": 1}, "expired"),
        ({"window_end_unix_ns": 2**62}, "from-the-future"),
    ],
)
async def test_refused_proposal_says_why_in_a_word_and_leaves_nothing(
    scene: Scene, changed: dict[str, Any], reason: str
) -> None:
    version = await scene.job.version()
    outcome = await scene.propose(scene.proposal(**changed))
    assert (outcome.decision, outcome.reason) == ("refused", reason)
    assert outcome.detail.endswith(".")
    assert await scene.job.version() == version
    assert scene.told == []


@pytest.mark.parametrize(
    "changed",
    [
        {"proposal_id": ""},
        {"proposal_id": "a\nb"},
        {"source": "billing"},
        {"affected_targets": ("Bot:Ping",)},
        {"affected_targets": ("bot",) * 101},
        {"evidence": "x" * 2049},
        {"window_start_unix_ns": 0},
    ],
    ids=str,
)
async def test_malformed_proposal_is_refused_whole(scene: Scene, changed: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match="must be"):
        await scene.job.propose([scene.proposal(1), scene.proposal(2, **changed)])
    assert not await scene.banned()


async def test_an_id_belongs_to_one_source(scene: Scene) -> None:
    await scene.propose(scene.proposal())
    assert (await scene.propose(scene.proposal(source="acme/bot"))).reason == "conflict"


async def test_a_ban_longer_than_allowed_is_shortened(open_scene: Open) -> None:
    scene = await open_scene(max_ban_s=60)
    outcome = await scene.propose(scene.proposal())
    assert outcome.until_unix_ns == scene.control.clock.unix_ns() + MINUTE
    assert "Shortened" in outcome.detail


async def concluded(scene: Scene, *found: str, as_of: int = 0) -> tuple[tuple[str, ...], ...]:
    now = scene.control.clock.unix_ns()
    audit = await scene.job.conclude(
        from_unix_ns=now - 10 * MINUTE, to_unix_ns=now, policy_version="v1", found=found, as_of_version=as_of
    )
    return audit.confirmed, audit.withdrawn, audit.unknown, audit.left


async def test_audit_confirms_what_it_finds_and_withdraws_what_it_does_not(scene: Scene) -> None:
    await service(scene.control, "acme", "shop")
    await grant(scene.control, wire.AclEntry(source="acme/shop", target="bot", name="Ping"))
    shop = wire.ResolveKey(source="acme/shop", target="bot", name="Ping")
    await scene.job.propose([scene.proposal(1), scene.proposal(2, source="acme/shop")])
    assert await scene.banned(shop)
    ids = ("v1:dominance:1", "v1:dominance:2")
    assert await concluded(scene, ids[0], "v1:never") == ((ids[0],), (ids[1],), ("v1:never",), ())
    assert await scene.banned()
    assert not await scene.banned(shop)
    assert (await scene.propose(scene.proposal(2, source="acme/shop"))).reason == "withdrawn"


async def test_two_auditors_at_once_do_each_thing_once_and_undo_nothing(scene: Scene) -> None:
    await scene.job.propose([scene.proposal(1), scene.proposal(2, affected_targets=())])
    one, two = await asyncio.gather(concluded(scene, "v1:dominance:1"), concluded(scene, "v1:dominance:1"))
    assert sorted(one[0] + two[0]) == ["v1:dominance:1"]
    assert sorted(one[1] + two[1]) == ["v1:dominance:2"]
    # A third one with an older view of the archive cannot withdraw a confirmed ban.
    assert await concluded(scene) == ((), (), (), ())
    assert await scene.banned()


async def test_audit_leaves_proposals_alone_that_came_after_it_began_to_read(scene: Scene) -> None:
    began = await scene.job.version()
    await scene.propose(scene.proposal())
    assert await concluded(scene, as_of=began) == ((), (), (), ("v1:dominance:1",))
    assert await scene.banned()


async def test_audit_of_a_range_that_is_not_over_is_refused(scene: Scene) -> None:
    now = scene.control.clock.unix_ns()
    with pytest.raises(BadRequest, match="not over yet") as refusal:
        await scene.job.conclude(from_unix_ns=now, to_unix_ns=now + 1, policy_version="v1", found=())
    assert refusal.value.reason == "open-range"


async def test_withdrawn_ban_leaves_the_place_to_the_other_proposal_that_stands_there(scene: Scene) -> None:
    now = scene.control.clock.unix_ns()
    await scene.propose(scene.proposal(1, ban_applied_until_unix_ns=now + 5 * MINUTE))
    await scene.propose(scene.proposal(2))
    await concluded(scene, "v1:dominance:1")
    ((standing,), _) = (list((await scene.operator.ls()).ban), None)
    assert standing.ban.until_unix_ns == now + 5 * MINUTE
    assert "v1:dominance:1" in standing.ban.reason


async def test_ban_of_the_full_run_needs_no_audit(scene: Scene) -> None:
    await scene.propose(scene.proposal(provisional=False))
    assert await concluded(scene) == ((), (), (), ())
    assert await scene.banned()


async def test_a_warning_is_told_once_and_bans_nobody(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BanNear] = []
    record = EventJournal.record

    def listen(journal: EventJournal, event: Any, *, at_unix_ns: int) -> None:
        if isinstance(event, BanNear):
            told.append(event)
        record(journal, event, at_unix_ns=at_unix_ns)

    monkeypatch.setattr(EventJournal, "record", listen)
    warning = scene.proposal(warning=True)
    for _ in range(3):
        outcome = await scene.propose(warning)
        assert outcome.decision == "already"
    assert told == [BanNear(SOURCE, ("bot",), 7, "dominance")]
    assert not await scene.banned()
    assert list((await scene.operator.explain(SOURCE)).proposal) == []
    # Where a ban would be refused, there is nothing to warn of.
    assert (
        await scene.propose(scene.proposal(2, source="acme/nobody", warning=True))
    ).reason == "unknown-source"
    # And the ban itself, under its own name, is one.
    assert (await scene.propose(scene.proposal(3))).decision == "applied"


async def test_an_operators_promise_holds_until_its_end_and_is_on_record(scene: Scene) -> None:
    """Neither a proposal nor Slow bans the source meanwhile; afterwards both may."""
    now = scene.control.clock.unix_ns()
    until = now + 30 * MINUTE
    done = await scene.operator.lift(SOURCE, reason="migration", spare_until_unix_ns=until)
    assert list(done.lifted) == []
    burst = {"kind": "burst-replayed", "affected_targets": ()}
    for number, changed in ((1, {}), (2, burst)):
        outcome = await scene.propose(scene.proposal(number, **changed))
        assert (outcome.decision, outcome.reason, outcome.final) == ("refused", "overridden", True)
    ban = wire.Ban(list=wire.BAN_LIST_WARM_BAN, source=SOURCE, until_unix_ns=now + 90 * MINUTE)
    with pytest.raises(SnavioError) as refusal:
        await scene.control.write("slow", "SetBan", wire.SetBanRequest(ban=ban))
    assert refusal.value.reason == "allowlisted"
    assert not await scene.banned()
    (told,) = [one for one in (await scene.operator.explain(SOURCE)).proposal if one.kind == "override"]
    assert (told.concluded_unix_ns, told.evidence) == (until, "migration")
    # Who has promised is in the log.
    scene.control.clock.advance(seconds=30 * 60)
    assert (await scene.propose(scene.proposal(3))).decision == "applied"
    assert await scene.banned()


@pytest.mark.parametrize("minutes", [-1, 8 * 24 * 60])
async def test_a_promise_has_an_end_within_a_week(scene: Scene, minutes: int) -> None:
    until = scene.control.clock.unix_ns() + minutes * MINUTE
    with pytest.raises(BadRequest, match="within the next seven days"):
        await scene.operator.lift(SOURCE, spare_until_unix_ns=until)
    with pytest.raises(NotFound, match="no service acme/nobody"):
        await scene.operator.lift("acme/nobody", spare_until_unix_ns=scene.control.clock.unix_ns() + MINUTE)


async def test_a_promise_lifts_what_stands_and_uses_nothing_of_the_cap(open_scene: Open) -> None:
    scene = await open_scene(max_bans_per_hour=1)
    assert (await scene.propose(scene.proposal(1))).decision == "applied"
    until = scene.control.clock.unix_ns() + MINUTE
    lifted = await scene.operator.lift(SOURCE, spare_until_unix_ns=until)
    assert [ban.target for ban in lifted.lifted] == ["bot"]
    assert not await scene.banned()


async def test_lifted_ban_is_not_imposed_again_for_what_was_done_before(scene: Scene) -> None:
    await scene.propose(scene.proposal(1))
    lifted = await scene.operator.lift(SOURCE, reason="they called")
    assert [ban.target for ban in lifted.lifted] == ["bot"]
    assert not await scene.banned()
    assert (await scene.propose(scene.proposal(1))).reason == "lifted"
    assert (await scene.propose(scene.proposal(2))).reason == "lifted"
    scene.control.clock.advance(seconds=120)
    assert (await scene.propose(scene.proposal(3))).decision == "applied"
    with pytest.raises(NotFound, match="no such ban"):
        await scene.operator.lift("acme/bot")


async def test_explanation_shows_bans_proposals_and_refusals_newest_first(scene: Scene) -> None:
    await scene.propose(scene.proposal(1))
    scene.control.clock.advance(seconds=1)
    await scene.propose(scene.proposal(2))
    await scene.propose(scene.proposal(3, affected_targets=("bot:Gone",)))
    told = await scene.operator.explain(SOURCE)
    assert [proposal.proposal_id for proposal in told.proposal] == ["v1:dominance:2", "v1:dominance:1"]
    assert told.proposal[0].evidence == '{"share":0.97}'
    assert [refused.reason for refused in told.refused] == ["unknown-target"]
    assert [standing.ban.name for standing in told.ban] == ["Ping"]


async def test_tenant_sees_its_own_bans_without_the_evidence_and_nobody_elses(scene: Scene) -> None:
    await tenant(scene.control, "evil")
    for name in ("acme", "evil"):
        await scene.control.certify(f"tenant/{name}/principal/ada", f"{name}-ada")
    await scene.propose(scene.proposal())
    registry, certificates = scene.control.mesh.registry, scene.control.mesh.certificates
    async with BanClient(registry, certificates=certificates("acme-ada")) as client:
        told = await client.explain(SOURCE)
        assert (told.proposal[0].evidence, told.ban[0].ban.evidence) == ("", "")
        assert len((await client.ls()).ban) == 1
    async with BanClient(registry, certificates=certificates("evil-ada")) as client:
        assert len((await client.ls()).ban) == 0
        with pytest.raises(NotAllowed):
            await client.explain(SOURCE)


async def test_proposals_are_forgotten_after_their_time_and_stay_in_the_log(open_scene: Open) -> None:
    scene = await open_scene(proposals_kept_s=3600, sweep_interval_s=0.05)
    await scene.propose(scene.proposal())
    scene.control.clock.advance(seconds=600 + 3600)
    for _ in range(200):
        if not (await scene.operator.explain(SOURCE)).proposal:
            break
        await asyncio.sleep(0.02)
    assert not (await scene.operator.explain(SOURCE)).proposal
    kinds = [(c.WhichOneof("value"), c.deleted) for c in (await changes(scene.control)).change]
    assert ("ban_proposal", True) in kinds


@pytest.mark.parametrize("name", ["Ping", ""], ids=["command", "target"])
async def test_a_frozen_command_fails_its_check_and_tells_the_owner_why(scene: Scene, name: str) -> None:
    ban = wire.Ban(list=wire.BAN_LIST_FROZEN, target="bot", name=name, reason="drill")
    question = wire.CheckRequest(source=SOURCE, target="bot", name="Ping")
    assert (await scene.control.ask(ADMIN, "Check", question, wire.CheckResponse)).passes
    await scene.control.write(ADMIN, "SetBan", wire.SetBanRequest(ban=ban))
    told = await scene.control.ask(ADMIN, "Check", question, wire.CheckResponse)
    assert (told.passes, told.failing_gate, told.verdict) == (False, "lists", "frozen")
    assert "frozen: drill" in told.gate[-1].detail
    assert (await resolve(scene.control, PING)).resolution[0].frozen
    await scene.control.write(ADMIN, "SetBan", wire.SetBanRequest(ban=ban, lifted=True))
    assert not (await resolve(scene.control, PING)).resolution[0].frozen


async def test_only_operators_freeze(scene: Scene) -> None:
    ban = wire.Ban(list=wire.BAN_LIST_FROZEN, target="bot")
    for lifted in (False, True):
        with pytest.raises(NotAllowed):
            await scene.control.write("slow", "SetBan", wire.SetBanRequest(ban=ban, lifted=lifted))
