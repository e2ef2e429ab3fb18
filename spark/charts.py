"""Charts as SVG text: for a page that needs no network and no script.

Never trusts a label: names come from producers and are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

DAY_S = 86_400
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 920, 240, 56, 28, 12


def short(number: float) -> str:
    """1234567 → 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def clock(span_s: float) -> str:
    """Format of a time in a range of so many seconds: with its day, where an hour alone would be one of several."""
    return "%m-%d %H:%M" if span_s > DAY_S else "%H:%M"


def stacked(times: Sequence[datetime], series: Sequence[tuple[str, Sequence[float]]], *, label: str) -> str:
    """Areas one on top of the other over time; `series` is (CSS class, values) from the bottom up."""
    if not times:
        return '<p class="none">Nothing happened in this range.</p>'
    totals = [sum(values[at] for _, values in series) for at in range(len(times))]
    top = max([*totals, 1e-9])
    span = max((times[-1] - times[0]).total_seconds(), 1.0)

    def x(at: int) -> float:
        if len(times) == 1:
            return LEFT
        return LEFT + (times[at] - times[0]).total_seconds() / span * (WIDTH - LEFT - 8)

    def y(value: float) -> float:
        return TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM)

    parts = [_frame(label), *_grid(top, y)]
    floor = [0.0] * len(times)
    for name, values in series:
        roof = [under + value for under, value in zip(floor, values, strict=True)]
        if len(times) == 1:
            parts.append(
                f'<rect class="{name}" x="{LEFT}" y="{y(roof[0]):.1f}" width="{WIDTH - LEFT - 8}" '
                f'height="{y(floor[0]) - y(roof[0]):.1f}"/>'
            )
        else:
            forth = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in enumerate(roof))
            back = " ".join(f"{x(at):.1f},{y(floor[at]):.1f}" for at in reversed(range(len(times))))
            parts.append(f'<polygon class="{name}" points="{forth} {back}"/>')
        floor = roof
    ticks = sorted({0, len(times) // 4, len(times) // 2, 3 * len(times) // 4, len(times) - 1})
    said = clock(span)
    written: set[str] = set()
    for at in ticks:
        # In a range of minutes two of them would read the same.
        if f"{times[at]:{said}}" in written:
            continue
        written.add(f"{times[at]:{said}}")
        anchor = "start" if at == 0 else "end" if at == len(times) - 1 else "middle"
        parts.append(
            f'<text class="axis" x="{x(at):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{times[at]:{said}}</text>'
        )
    return "".join([*parts, "</svg>"])


def bars(rows: Sequence[tuple[str, float, str]], *, label: str, name: str = "bar") -> str:
    """One bar per (label, value, what to write behind it), longest first."""
    rows = [row for row in rows if row[1] > 0]
    if not rows:
        return '<p class="none">None.</p>'
    most = max(value for _, value, _ in rows)
    step, left = 24, 300
    height = step * len(rows) + 4
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">']
    for at, (text, value, behind) in enumerate(rows):
        y, width = at * step + 4, max(2.0, value / most * (WIDTH - left - 200))
        parts.append(
            f'<text class="label" x="{left - 10}" y="{y + 13}" text-anchor="end">{escape(_cut(text))}</text>'
            f'<rect class="{name}" x="{left}" y="{y}" width="{width:.1f}" height="16" rx="3"/>'
            f'<text class="axis" x="{left + width + 8:.1f}" y="{y + 13}">{escape(behind)}</text>'
        )
    return "".join([*parts, "</svg>"])


def spark_line(counts: Sequence[float], *, label: str) -> str:
    """A row of small columns: the shape of a distribution."""
    most = max([*counts, 1e-9])
    step = 9
    parts = [
        f'<svg class="tiny" viewBox="0 0 {step * len(counts)} 26" role="img" aria-label="{escape(label)}">'
    ]
    for at, count in enumerate(counts):
        height = 24 * count / most
        if count:
            height = max(height, 1.0)
        parts.append(
            f'<rect class="fast" x="{at * step}" y="{25 - height:.1f}" width="{step - 2}" height="{height:.1f}"/>'
        )
    return "".join([*parts, "</svg>"])


def _frame(label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'


def _grid(top: float, y: object) -> list[str]:
    assert callable(y)
    lines = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = y(top * part)
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 8}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="axis" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{short(top * part)}</text>'
        )
    return lines


def _cut(text: str, most: int = 44) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
