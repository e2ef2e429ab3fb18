"""Proposals on their way to Registry: stored, retried, answered once; and withdrawals by an audit."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from snavio.admin.bans import AuditAnswer, Proposal, ProposalAnswer
from snavio.audit import ban_audit
from snavio.audit.ban_audit import AuditEvidence, audit
from snavio.audit.proposals import as_asked, read_lines
from snavio.audit.proposer import Proposer, alone
from snavio.clock import ManualClock
from snavio.errors import BadRequest, Conflict, Unavailable

NOW = 1_794_794_400_000_000_000
MINUTE = 60_000_000_000


def at(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat()


def line(name: str = "a", **given: Any) -> dict[str, Any]:
    start = given.pop("start", NOW - 5 * MINUTE)
    return {
        "proposal_id": hashlib.sha256(name.encode()).hexdigest(),
        "policy_version": "1",
        "kind": "dominance-single-target",
        "source": f"acme/{name}",
        "affected_targets": ["bot"],
        "total_violations": 4,
        "window_start": at(start),
        "window_end": at(start + 5 * MINUTE),
        "ban_applied_until": at(start + 15 * MINUTE),
        "evidence": '{"source_share":0.9}',
        **given,
    }


def written(folder: Path, *lines: dict[str, Any], name: str = "00000001") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return fresh.replace(path)


class Registry:
    """Decides as the real one does: each id once, whoever asks."""

    def __init__(self) -> None:
        self.bans: dict[str, Proposal] = {}
        self.calls: list[list[str]] = []
        self.away = False
        self.cap = 1000
        self.malformed: set[str] = set()
        self.concluded: list[dict[str, Any]] = []
        self.provisional: set[str] = set()

    async def propose(self, proposals: Sequence[Proposal]) -> Sequence[ProposalAnswer]:
        self.calls.append([proposal.source for proposal in proposals])
        if self.away:
            raise Unavailable("Registry is away.")
        if any(proposal.source in self.malformed for proposal in proposals):
            raise BadRequest("One of them is malformed.", reason="malformed")
        await asyncio.sleep(0)
        answers = []
        for proposal in proposals:
            room = proposal.proposal_id in self.bans or len(self.bans) < self.cap
            if room:
                if proposal.provisional and proposal.proposal_id not in self.bans:
                    self.provisional.add(proposal.proposal_id)
                if not proposal.provisional:
                    self.provisional.discard(proposal.proposal_id)
                self.bans.setdefault(proposal.proposal_id, proposal)
            answers.append(
                ProposalAnswer(proposal.proposal_id, "applied", "", "")
                if room
                else ProposalAnswer(proposal.proposal_id, "refused", "cap-reached", "", retry_after_ms=60_000)
            )
        return answers

    async def conclude(self, **given: Any) -> AuditAnswer:
        if self.away:
            raise Unavailable("Registry is away.")
        self.concluded.append(given)
        confirmed = [one for one in given["found"] if one in self.provisional]
        self.provisional.difference_update(confirmed)
        return AuditAnswer(7, tuple(confirmed), (), (), ())


def proposer(tmp_path: Path, registry: Registry, clock: ManualClock | None = None) -> Proposer:
    return Proposer(
        tmp_path / "proposals",
        answers=tmp_path / "answers.json",
        bans=registry,
        clock=clock or ManualClock(NOW),
    )


async def test_a_proposal_is_sent_once_however_often_it_is_written(tmp_path: Path) -> None:
    registry = Registry()
    written(tmp_path / "proposals", line())
    one = proposer(tmp_path, registry)
    assert await one.step() == 1
    # The next batch finds it again, with more evidence; a batch that Spark repeats writes its file again.
    written(tmp_path / "proposals", line(total_violations=9), name="00000002")
    written(tmp_path / "proposals", line())
    assert (await one.step(), await proposer(tmp_path, registry).step()) == (0, 0)
    assert registry.calls == [["acme/a"]]


async def test_proposals_wait_while_registry_is_away_and_survive_a_restart(tmp_path: Path) -> None:
    registry = Registry()
    registry.away = True
    written(tmp_path / "proposals", line("a"), line("b"))
    first = proposer(tmp_path, registry)
    with pytest.raises(Unavailable):
        await first.step()
    assert first.waiting == 2
    registry.away = False
    again = proposer(tmp_path, registry)
    assert (await again.step(), again.waiting, len(registry.bans)) == (2, 0, 2)


async def test_the_loop_goes_on_by_itself_when_registry_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snavio.audit.proposer.LOOK_SECONDS", 0.001)
    monkeypatch.setattr("snavio.audit.proposer.FIRST_PAUSE_S", 0.001)
    registry, stop = Registry(), asyncio.Event()
    registry.away = True
    written(tmp_path / "proposals", line())
    one = proposer(tmp_path, registry)
    running = asyncio.create_task(one.run(stop))
    async with asyncio.timeout(30):
        while one.counts["away"] < 3:
            await asyncio.sleep(0.001)
        registry.away = False
        while not registry.bans:
            await asyncio.sleep(0.001)
    stop.set()
    await running
    assert (one.counts["applied"], one.waiting) == (1, 0)


async def test_killed_between_the_answer_and_its_note_it_asks_again_and_nothing_is_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    registry = Registry()
    written(tmp_path / "proposals", line())
    with monkeypatch.context() as patch:
        patch.setattr("snavio.audit.proposer.write_whole", killed)
        with pytest.raises(Killed):
            await proposer(tmp_path, registry).step()
    assert await proposer(tmp_path, registry).step() == 1
    assert (len(registry.calls), len(registry.bans)) == (2, 1)


async def test_two_auditors_at_once_ban_once(tmp_path: Path) -> None:
    registry = Registry()
    for auditor in ("one", "two"):
        written(tmp_path / auditor / "proposals", line("a"), line("b"))
    await asyncio.gather(*(proposer(tmp_path / auditor, registry).step() for auditor in ("one", "two")))
    assert (len(registry.calls), len(registry.bans)) == (2, 2)


def test_two_runs_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(Conflict, match="Another run works in"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


async def test_a_cap_puts_a_proposal_off_and_a_ban_that_is_over_is_not_asked_for(tmp_path: Path) -> None:
    registry, clock = Registry(), ManualClock(NOW)
    registry.cap = 1
    written(tmp_path / "proposals", line("a"), line("b"), line("old", start=NOW - 60 * MINUTE))
    one = proposer(tmp_path, registry, clock)
    assert (await one.step(), one.waiting, one.counts["over"]) == (1, 1, 1)
    assert await one.step() == 0
    assert len(registry.calls) == 1
    registry.cap = 2
    clock.advance(ns=MINUTE)
    assert (await one.step(), len(registry.bans)) == (1, 2)


async def test_a_proposal_that_registry_cannot_read_does_not_hold_up_the_others(tmp_path: Path) -> None:
    registry = Registry()
    registry.malformed = {"acme/c"}
    written(tmp_path / "proposals", *(line(name) for name in "abcde"))
    one = proposer(tmp_path, registry)
    assert await one.step() == 5
    assert {ban.source for ban in registry.bans.values()} == {f"acme/{name}" for name in "abde"}
    assert one.counts["refused"] == 1


@pytest.mark.parametrize(
    "spoilt",
    [
        {"proposal_id": "short"},
        {"source": "nobody"},
        {"total_violations": "4"},
        {"window_start": "2026-11-16T10:00:00"},
        {"evidence": "[]"},
        {"affected_targets": [1]},
        {"also": ["short"]},
    ],
)
def test_a_line_that_is_no_proposal_is_counted_and_the_rest_is_read(spoilt: dict[str, Any]) -> None:
    lines = [json.dumps(line("a")), json.dumps(line("b", **spoilt)), "{", ""]
    found = read_lines(text.encode() for text in lines)
    assert ([one.source for one in found.proposals], found.unreadable) == (["acme/a"], 2)


def test_a_burst_leaves_the_warm_path_of_all_routes_and_its_targets_are_evidence() -> None:
    (proposal,) = read_lines(
        [json.dumps(line("a", kind="burst-misrouted", affected_targets=["no-such"])).encode()]
    ).proposals
    asked = as_asked(proposal, provisional=True)
    assert (asked.affected_targets, asked.provisional) == ((), True)
    assert json.loads(asked.evidence)["targets"] == ["no-such"]


# -- the audit -----------------------------------------------------------------------------------------


WHOLE = AuditEvidence([(NOW - 65 * MINUTE, NOW)])
LINES = (
    line("a", kind="burst-replayed"),
    line("past", start=NOW - 60 * MINUTE),
    line("edge", start=NOW - 20 * MINUTE),
)


def proposals(*lines: dict[str, Any]) -> Sequence[Proposal]:
    return read_lines(json.dumps(one).encode() for one in lines).proposals


async def audited(
    registry: Registry, *lines: dict[str, Any], evidence: AuditEvidence = WHOLE, until: int | None = NOW
) -> Any:
    found = proposals(*(lines or LINES))
    return await audit(
        found,
        bans=registry,
        clock=ManualClock(NOW),
        policy_version="1",
        since_unix_ns=NOW - 65 * MINUTE,
        until_unix_ns=until,
        evidence=evidence,
        began_at_version=7,
        period_minutes=10,
        also=read_lines(json.dumps(one).encode() for one in (lines or LINES)).also,
    )


async def test_an_audit_judges_whole_periods_that_get_no_more_events(tmp_path: Path) -> None:
    registry = Registry()
    result = await audited(registry)
    (told,) = registry.concluded
    assert (told["from_unix_ns"], told["to_unix_ns"]) == (NOW - 60 * MINUTE, NOW - 20 * MINUTE)
    assert told["found"] == [hashlib.sha256(b"past").hexdigest()]
    assert (told["as_of_version"], result.over) == (7, 2)
    assert [proposal.source for proposal in registry.bans.values()] == ["acme/a"]


async def test_an_audit_proposes_without_reserve_only_what_it_judged() -> None:
    """The others could not be withdrawn: no later audit checks unconditional proposals."""
    registry = Registry()
    closed = line("closed", start=NOW - 30 * MINUTE, ban_applied_until=at(NOW + 5 * MINUTE))
    late = line("late", start=NOW - 20 * MINUTE, ban_applied_until=at(NOW + 5 * MINUTE))
    result = await audited(registry, closed, late)
    assert set(registry.bans) == {closed["proposal_id"], late["proposal_id"]}
    assert registry.provisional == {late["proposal_id"]}
    assert (result.provisional, result.running) == (1, 0)
    # In doubt, nothing is without reserve.
    assert (await audited(registry, closed, late, evidence=replace(WHOLE, left_out=1))).provisional == 2


async def test_an_honest_ban_is_withdrawn_and_one_that_moved_over_its_period_is_not() -> None:
    """A late event may move an alarm into the next period: the ban of the same abuse keeps its old name."""
    registry = Registry()
    moved, honest = hashlib.sha256(b"moved").hexdigest(), hashlib.sha256(b"honest").hexdigest()
    found = line("found", start=NOW - 30 * MINUTE, also=[moved])
    await audited(registry, found)
    (told,) = registry.concluded
    assert set(told["found"]) == {found["proposal_id"], moved}
    assert honest not in told["found"]
    # Of another range, it is named where its period touches that range, and nowhere else.
    far = line("far", start=NOW - 90 * MINUTE, also=[moved])
    registry.concluded.clear()
    await audited(registry, far)
    assert moved not in registry.concluded[0]["found"]


async def test_an_audit_leaves_shares_of_a_period_that_runs_and_takes_its_bursts() -> None:
    registry = Registry()
    lasting = {"ban_applied_until": at(NOW + 15 * MINUTE)}
    shares = line("shares", start=NOW - 5 * MINUTE, **lasting, kind="dominance-single-target")
    burst = line("burst", start=NOW - 5 * MINUTE, **lasting, kind="burst-invalid-hmac")
    result = await audited(registry, shares, burst)
    assert (set(registry.bans), registry.provisional) == ({burst["proposal_id"]}, {burst["proposal_id"]})
    assert result.running == 1


async def test_an_audit_tells_every_ban_that_it_confirms_also_one_that_still_lasts(tmp_path: Path) -> None:
    registry = Registry()
    long = line("long", start=NOW - 30 * MINUTE, ban_applied_until=at(NOW + 5 * MINUTE))
    over = line("over", start=NOW - 40 * MINUTE)
    await registry.propose([replace(one, provisional=True) for one in proposals(long, over)])
    result = await audited(registry, long, over)
    assert set(result.confirmed) == {long["proposal_id"], over["proposal_id"]}
    assert (await audited(registry, long, over)).confirmed == ()


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (replace(WHOLE, left_out=1), "files of the range are left out"),
        (replace(WHOLE, holes=1), "missing from the archive"),
        (replace(WHOLE, unreadable=2), "2 of the job's own findings cannot be read"),
        (AuditEvidence([]), "the archive has no events of the range"),
        (AuditEvidence([(NOW - 300 * MINUTE, NOW - 200 * MINUTE)]), "no whole period with events"),
    ],
)
async def test_nobody_is_set_free_on_evidence_that_is_not_whole(evidence: AuditEvidence, why: str) -> None:
    registry = Registry()
    result = await audited(registry, evidence=evidence)
    assert registry.concluded == []
    assert why in result.not_judged
    # What was found is found all the same.
    assert [proposal.source for proposal in registry.bans.values()] == ["acme/a"]


async def test_a_period_without_any_event_is_not_judged(tmp_path: Path) -> None:
    """Its hour was deleted: the others of the range are judged, and no ban of it is withdrawn."""
    registry = Registry()
    spans = [(NOW - 61 * MINUTE, NOW - 55 * MINUTE), (NOW - 29 * MINUTE, NOW)]
    await audited(registry, evidence=AuditEvidence(spans))
    assert [(told["from_unix_ns"], told["to_unix_ns"]) for told in registry.concluded] == [
        (NOW - 60 * MINUTE, NOW - 50 * MINUTE),
        (NOW - 30 * MINUTE, NOW - 20 * MINUTE),
    ]


async def test_more_findings_than_one_call_takes_are_concluded_period_by_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ban_audit, "MOST_FOUND", 3)
    registry = Registry()
    starts = [NOW - minutes * MINUTE for minutes in (60, 50, 50, 30, 30, 30, 30)]
    lines = [line(f"s{number}", start=start) for number, start in enumerate(starts)]
    await audited(registry, *lines)
    told = [(each["from_unix_ns"], each["to_unix_ns"], len(each["found"])) for each in registry.concluded]
    assert told == [
        (NOW - 60 * MINUTE, NOW - 30 * MINUTE, 3),
        (NOW - 30 * MINUTE, NOW - 20 * MINUTE, 4),
    ]


async def test_a_range_without_a_whole_period_judges_nobody(tmp_path: Path) -> None:
    registry = Registry()
    result = await audited(registry, until=NOW - 60 * MINUTE)
    assert registry.concluded == []
    assert "no whole period with events is over" in result.not_judged
