"""The streaming job, standing still at a named point so that a test can kill it just there.

python -m tests.support.halting_watch <point> <options of the job>
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from spark.jobs import watch_abuse
from spark.jobs.arguments import run, told

POINTS: Final[dict[str, tuple[str, bool]]] = {
    # Which step of the job, and whether it was done before the job stands still.
    "nothing counted": ("write_table", False),
    "base without note": ("write_text", False),
    "note without word": ("write_text", True),
    "judging": ("evidence", True),
    "judged and not written": ("write_lines", False),
    "proposals without word": ("write_lines", True),
}


def halting(step: Callable[..., Any], point: str, *, done: bool) -> Callable[..., Any]:
    """The step, which never returns."""

    def halt(*given: Any, **named: Any) -> Any:
        if done:
            step(*given, **named)
        told(step="halted", point=point)
        time.sleep(3600)

    return halt


if __name__ == "__main__":
    chosen = sys.argv.pop(1)
    name, after = POINTS[chosen]
    setattr(watch_abuse, name, halting(getattr(watch_abuse, name), chosen, done=after))
    run(watch_abuse.watch, watch_abuse.options())
