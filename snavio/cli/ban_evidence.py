"""The evidence of a proposal as a person reads it: who suffered, since when, and how it went, as a small plot.

Never trusts the evidence: another program wrote it, and what is not in its form is shown as it is, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from snavio.cli.render import one_line

BARS: Final = " ▁▂▃▄▅▆▇█"
WIDEST: Final = 60
MOST_NAMES: Final = 5


def evidence_lines(text: str) -> Iterator[str]:
    """Sentences and a plot; the text itself where it is of another form."""
    if not text:
        return
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict) or "since" not in told:
        yield f"evidence {one_line(text, most=0)}"
        return
    since = one_line(str(told["since"]), most=0)
    if "others_refused" in told:
        yield (
            f"since {since} it held {_percent(told.get('source_share'))} of {_number(told.get('of_permits'))} permits; "
            f"of {_number(told.get('others_offered'))} commands that others offered meanwhile "
            f"{_number(told['others_refused'])} were refused"
        )
        suffered = told.get("suffered")
        if isinstance(suffered, dict) and suffered:
            names = [f"{one_line(str(name), most=0)} {_number(number)}" for name, number in suffered.items()]
            yield f"suffered most: {', '.join(names[:MOST_NAMES])}"
        yield from _plot(told)
    else:
        yield (
            f"since {since} {_number(told.get('refused'))} of {_number(told.get('sent'))} commands had to be refused, "
            f"in {_number(told.get('windows'))} windows"
        )
        targets = told.get("targets")
        if isinstance(targets, list) and targets:
            yield f"it named {', '.join(one_line(str(name), most=0) for name in targets[:MOST_NAMES])}"


def _plot(told: dict[str, Any]) -> Iterator[str]:
    each = _number(told.get("window_seconds"))
    for name, key in (("its share of permits", "share_course"), ("of others refused", "harm_course")):
        course = told.get(key)
        if isinstance(course, list) and course and all(isinstance(part, int) for part in course):
            bars = "".join(_bar(part) for part in course[-WIDEST:])
            yield f"{name:>20}  |{bars}|  up to {max(course[-WIDEST:])} %, {each} s a sign"


def _bar(percent: int) -> str:
    share = min(max(percent, 0), 100)
    return BARS[-(-share * (len(BARS) - 1) // 100)]


def _percent(share: object) -> str:
    return f"{share * 100:.1f} %" if isinstance(share, int | float) else "some"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else "some"
