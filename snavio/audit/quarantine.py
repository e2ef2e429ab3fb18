"""Tells what of the archive was left out: a report for programs, a sentence for people.

Never silent: a file that does not count is named, with its reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.audit.index_file import moment, write_whole
from snavio.audit.verify_archive import VerifiedArchive

MAX_TOLD: Final = 10_000
"""Findings that a report lists; all of them are counted."""


def document(verified_archive: VerifiedArchive, *, now_unix_ns: int) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "at": moment(now_unix_ns),
        "files": len(verified_archive.entries),
        "events": verified_archive.events,
        "on_their_way": verified_archive.on_their_way,
        "quarantined": len(verified_archive.quarantined),
        "by_reason": dict(
            sorted(Counter(finding.problem for finding in verified_archive.quarantined).items())
        ),
        "holes": [asdict(hole) for hole in verified_archive.holes[:MAX_TOLD]],
        "findings": [asdict(finding) for finding in verified_archive.quarantined[:MAX_TOLD]],
    }


def write_report(verified_archive: VerifiedArchive, path: Path, *, now_unix_ns: int) -> None:
    """The report as a file."""
    told = document(verified_archive, now_unix_ns=now_unix_ns)
    write_whole(path, orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def sentence(verified_archive: VerifiedArchive, report: Path) -> str:
    """For people; empty when nothing was left out or is missing."""
    missing = len(verified_archive.holes)
    stretch = "stretch of events is" if missing == 1 else "stretches of events are"
    holes = f"{missing} {stretch} missing from the archive" if missing else ""
    number = len(verified_archive.quarantined)
    if not number:
        return f"{holes}; {report} says which." if holes else ""
    reasons = Counter(finding.problem for finding in verified_archive.quarantined)
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    files = "file is" if number == 1 else "files are"
    left_out = f"{number} {files} left out ({told})"
    return f"{', '.join(filter(None, (left_out, holes)))}; {report} says which."
