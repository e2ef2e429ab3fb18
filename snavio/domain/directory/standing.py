"""The suspension under which a source stands now: its own, or its tenant's. Never one that has ended."""

from __future__ import annotations

from snavio.domain.directory.changes import DirectoryView
from snavio.domain.directory.kinds import is_over
from snavio.domain.directory.lists import Suspension, every_source


def suspension_of(view: DirectoryView, source: str, now_unix_ns: int) -> Suspension | None:
    """The suspension that keeps a source out; None when there is none."""
    for name in (source, every_source(source.partition("/")[0])):
        found = view.find(Suspension, name)
        if found is not None and not is_over(found, now_unix_ns):
            return found
    return None
