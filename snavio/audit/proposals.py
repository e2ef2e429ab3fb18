"""Reads the proposals that Spark wrote, strictly, since a source is banned on their word.

Never guesses at a line that is not whole: it is counted and left out, and the rest is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.admin.bans import Proposal
from snavio.signed.signed_document import text_in

MAX_FILE_BYTES: Final = 64 << 20
BURST: Final = "burst-"
MAX_EVIDENCE: Final = 2048
MAX_ALSO: Final = 2
MAX_TARGETS: Final = 100
"""That Registry takes in one proposal; a source that harms more of them is banned from all its routes."""
_ID: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SOURCE: Final = re.compile(r"[a-z0-9-]{1,63}/[a-z0-9-]{1,63}", re.ASCII)
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", re.ASCII)
"""The same as Spark's policies have: what passes there and not here would lose every proposal."""
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)


def read_proposal(found: Any) -> Proposal:
    """A proposal from the values of one line; ValueError says which field is not in its form."""
    targets = found["affected_targets"] or []
    if not all(isinstance(target, str) for target in targets):
        raise ValueError("affected_targets are no texts")
    violations = found["total_violations"]
    if type(violations) is not int or violations < 0:
        raise ValueError("total_violations is no number")
    evidence = found["evidence"] or "{}"
    if not isinstance(orjson.loads(evidence), dict):
        raise ValueError("evidence is no object")
    return Proposal(
        proposal_id=text_in(found, "proposal_id", _ID),
        policy_version=text_in(found, "policy_version", _VERSION),
        kind=text_in(found, "kind", _WORD),
        source=text_in(found, "source", _SOURCE),
        affected_targets=tuple(targets) if len(targets) <= MAX_TARGETS else (),
        total_violations=violations,
        window_start_unix_ns=_unix_ns(found["window_start"]),
        window_end_unix_ns=_unix_ns(found["window_end"]),
        ban_applied_until_unix_ns=_unix_ns(found["ban_applied_until"]),
        evidence=evidence,
        warning=found.get("warning") is True,
    )


def as_asked(proposal: Proposal, *, provisional: bool) -> Proposal:
    """The proposal as Registry is asked: never more than the archive vouches for."""
    targets, evidence = proposal.affected_targets, proposal.evidence
    if proposal.kind.startswith(BURST):
        # The targets of refused commands were never checked: they may not exist, or be named to be spared.
        # Such a source leaves the warm path of all its routes, and what it named is evidence.
        named = orjson.dumps({**orjson.loads(evidence), "targets": list(targets)}).decode()
        evidence = named if len(named) <= MAX_EVIDENCE and named.isprintable() else evidence
        targets = ()
    return replace(proposal, affected_targets=targets, evidence=evidence, provisional=provisional)


@dataclass(frozen=True, slots=True)
class ProposalLines:
    """The proposals of a file, and the number of lines that are none."""

    proposals: tuple[Proposal, ...]
    unreadable: int
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By proposal: other ids that name the same finding, where a late event could have moved it to another period."""


def read_lines(lines: Iterable[bytes]) -> ProposalLines:
    """JSON lines as proposals."""
    found, unreadable = [], 0
    also: dict[str, tuple[str, ...]] = {}
    for line in lines:
        if line.strip():
            try:
                values = orjson.loads(line)
                proposal = read_proposal(values)
                also[proposal.proposal_id] = _ids(values.get("also") or [])
                found.append(proposal)
            except (ValueError, KeyError, TypeError):
                unreadable += 1
    return ProposalLines(tuple(found), unreadable, {name: ids for name, ids in also.items() if ids})


def read_proposals(path: Path) -> ProposalLines:
    """A file of them; a file that is not there holds none."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return ProposalLines((), 1)
        return read_lines(path.read_bytes().splitlines())
    except FileNotFoundError:
        return ProposalLines((), 0)


def _ids(found: list[Any]) -> tuple[str, ...]:
    if len(found) > MAX_ALSO or not all(isinstance(one, str) and _ID.fullmatch(one) for one in found):
        raise ValueError("also are no ids")
    return tuple(found)


def _unix_ns(text: str) -> int:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time has no zone")
    return round(time.timestamp() * 1e6) * 1000
