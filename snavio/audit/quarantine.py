"""Tells what of the archive was left out: a report for programs, a sentence for people.

Never silent: a file that does not count is named, with its reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.audit.belief import Belief
from snavio.audit.entries import moment, write_whole

MAX_TOLD: Final = 10_000
"""Findings that a report lists; all of them are counted."""


def document(belief: Belief, *, now_unix_ns: int) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "at": moment(now_unix_ns),
        "files": len(belief.entries),
        "events": belief.events,
        "on_their_way": belief.on_their_way,
        "quarantined": len(belief.quarantined),
        "by_reason": dict(sorted(Counter(finding.problem for finding in belief.quarantined).items())),
        "holes": [asdict(hole) for hole in belief.holes[:MAX_TOLD]],
        "findings": [asdict(finding) for finding in belief.quarantined[:MAX_TOLD]],
    }


def write_report(belief: Belief, path: Path, *, now_unix_ns: int) -> None:
    """The report as a file."""
    told = document(belief, now_unix_ns=now_unix_ns)
    write_whole(path, orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def sentence(belief: Belief, report: Path) -> str:
    """For people; empty when nothing was left out or is missing."""
    missing = len(belief.holes)
    stretch = "stretch of events is" if missing == 1 else "stretches of events are"
    holes = f"{missing} {stretch} missing from the archive" if missing else ""
    number = len(belief.quarantined)
    if not number:
        return f"{holes}; {report} says which." if holes else ""
    reasons = Counter(finding.problem for finding in belief.quarantined)
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    files = "file is" if number == 1 else "files are"
    left_out = f"{number} {files} left out ({told})"
    return f"{', '.join(filter(None, (left_out, holes)))}; {report} says which."
