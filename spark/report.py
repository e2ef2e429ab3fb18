"""The SLO report as one HTML page that a person would look at.

Needs nothing from the network, runs no script, and escapes every name: they come from producers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from html import escape
from typing import Any

from spark.charts import bars, clock, short, spark_line, stacked
from spark.forecast import Line, saturation
from spark.transforms.base import BUCKETS, ESCALATIONS, PHASES
from spark.transforms.slo import FAILURES, INVALID, NEAR, OBJECTIVE, SKEW_WINDOW_S, upper_ms

Rows = Sequence[Mapping[str, Any]]
MOST_ROWS = 25
MOST_POINTS = 480


@dataclass(frozen=True, slots=True)
class Findings:
    """The content of the page; rows as the transforms made them."""

    since: datetime | None
    until: datetime | None
    window_seconds: int
    timeline: Rows
    latency: Rows
    refusals: Rows
    escalations: Rows
    shares: Rows
    skew: Rows
    keys: Rows
    revoked: Rows
    proposals: Rows = field(default_factory=tuple)
    budgets: Rows = field(default_factory=tuple)
    use: Rows = field(default_factory=tuple)
    demand: Rows = field(default_factory=tuple)
    returned_keys: Rows = field(default_factory=tuple)


def page(found: Findings) -> str:
    """The whole page."""
    parts = [
        _head(found),
        _section("Traffic", "Commands per second, by what became of them.", _traffic(found)),
        _section(
            "Error budgets",
            f"Of a thousand commands that a route took on, {OBJECTIVE * 1000:g} are to arrive; used up at 100 %.",
            _budgets(found),
        ),
        _section("Use", "What each tenant cost the mesh, largest first.", _use(found)),
        _section(
            "Saturation",
            "Routes that turned somebody away for want of room, and when what is asked of them reaches what they"
            " deliver, if it goes on as in this range; brackets: in 95 of 100 cases.",
            _saturation(found),
        ),
        _section(
            "Latency",
            "From admission to settlement; percentiles are exact to a power of two.",
            _latency(found),
        ),
        _section("Refused", "Valid commands that failed, and what Shield turned away.", _refused(found)),
        _section("Slow path", "Why Fast handed commands on, and how old its caches were.", _escalated(found)),
        _section("Fairness", "Sources that took most of a contended route.", _fairness(found)),
        _section("Proposed bans", "What the policy calls abuse.", _proposals(found)),
        _section("Clocks", "Senders whose clock is off, worst first.", _clocks(found)),
        _section("Keys", "Key versions that commands were signed with.", _keys(found)),
        _section(
            "After revocation", "Commands that went by a right that had been taken away.", _revoked(found)
        ),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Snavio: how the mesh did</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _total(rows: Rows, name: str) -> int:
    return sum(int(row[name] or 0) for row in rows)


def _head(found: Findings) -> str:
    delivered = _total(found.timeline, "fast") + _total(found.timeline, "slow")
    failed, invalid = _total(found.timeline, "failed"), _total(found.timeline, "invalid")
    sent = delivered + failed + invalid
    warm = _total(found.timeline, "fast")
    tiles = [
        ("delivered", short(delivered), ""),
        ("of all valid", _percent(delivered, delivered + failed), "good" if failed * 100 <= sent else "bad"),
        ("by the fast path", _percent(warm, delivered), ""),
        ("turned away by Shield", short(invalid), "bad" if invalid * 10 > sent else ""),
        ("sources dominant", str(len({row["source"] for row in found.shares if row["dominant"]})), ""),
        ("after revocation", short(_total(found.revoked, "commands")), "bad" if found.revoked else "good"),
    ]
    boxes = "".join(
        f'<div class="tile {tone}"><b>{value}</b><span>{name}</span></div>' for name, value, tone in tiles
    )
    return f'<h1>How the mesh did</h1><p class="range">{_range(found)}</p><div class="tiles">{boxes}</div>'


def _range(found: Findings) -> str:
    since = found.since or min((row["window_start"] for row in found.timeline), default=None)
    until = found.until or max((row["window_start"] for row in found.timeline), default=None)
    if since is None or until is None:
        return "No events in this range."
    return f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"


def _traffic(found: Findings) -> str:
    names = ("fast", "slow", "failed", "invalid")
    times, rates = _evenly(found.timeline, names, found.window_seconds)
    series = [(name, rates[name]) for name in names]
    legend = "".join(f'<span class="key"><i class="{name}"></i>{name}</span>' for name in names)
    chart = stacked(times, series, label="commands per second over time")
    return f'<p class="legend">{legend}</p>{chart}'


def _evenly(
    rows: Rows, names: Sequence[str], window_seconds: int
) -> tuple[list[datetime], dict[str, list[float]]]:
    """Times and rates from the first window to the last, also where a window has no row.

    A table has no row where nothing happened, and a line from one hour to the next would show traffic that was not
    there. A long range has several windows to a point.
    """
    if not rows:
        return [], {name: [] for name in names}
    starts = [row["window_start"] for row in rows]
    first = min(starts)
    windows = int((max(starts) - first).total_seconds()) // window_seconds + 1
    each = -(-windows // MOST_POINTS)
    points = range(0, windows, each)
    sums = {name: [0] * len(points) for name in names}
    for row in rows:
        at = int((row["window_start"] - first).total_seconds()) // window_seconds // each
        for name in names:
            sums[name][at] += int(row[name] or 0)
    # The last point may have fewer windows than the others, and must not look like a fall for that.
    seconds = [window_seconds * min(each, windows - begin) for begin in points]
    rates = {
        name: [number / length for number, length in zip(sums[name], seconds, strict=True)] for name in names
    }
    return [first + timedelta(seconds=window_seconds * begin) for begin in points], rates


def _budgets(found: Findings) -> str:
    rows = sorted(found.budgets, key=lambda row: (-row["budget_used"], row["tenant"], _plain_route(row)))
    cells = [
        [
            escape(row["tenant"]),
            _route(row),
            f"{row['taken_on']:,}",
            f"{row['failed']:,}",
            f"{100 * row['arrived']:.3f} %",
            f"{100 * row['budget_used']:,.0f} %",
        ]
        for row in rows[:MOST_ROWS]
    ]
    heads = ["tenant", "route", "taken on", "did not arrive", "arrived", "budget used"]
    return _table(heads, cells, of=len(rows))


def _use(found: Findings) -> str:
    rows = sorted(found.use, key=lambda row: (-row["sent"], row["tenant"]))
    whole = _total(found.use, "sent")
    names = ("fast", "slow", "failed", "invalid")
    cells = [
        [
            escape(row["tenant"]),
            f"{row['sent']:,}",
            _percent(row["sent"], whole),
            *(f"{row[name]:,}" for name in names),
        ]
        for row in rows[:MOST_ROWS]
    ]
    return _table(["tenant", "commands", "of all", *names], cells, of=len(rows))


def _saturation(found: Findings) -> str:
    told = []
    for row in found.demand:
        line = Line(**{name: row[name] for name in Line.__slots__})
        forecast = saturation(line, row["capacity"])
        told.append(
            (math.inf if forecast is None else forecast.hours, _plain_route(row), line, forecast, row)
        )
    told.sort(key=lambda one: one[:2])
    cells = []
    for _, route, line, forecast, row in told[:MOST_ROWS]:
        if forecast is None:
            when = "does not grow towards it"
        elif not forecast.hours:
            when = "now"
        else:
            latest = "later" if forecast.latest is None else f"{forecast.latest:.1f} h"
            when = f"{forecast.hours:.1f} h [{forecast.earliest:.1f} h to {latest}]"
        rates = (value / found.window_seconds for value in (line.now, row["capacity"]))
        cells.append([escape(route), *(f"{rate:,.1f}/s" for rate in rates), when])
    heads = ["route", "asked now", "delivers at most", "full in"]
    return _table(heads, cells, of=len(told), none="No route was full in this range.")


def _latency(found: Findings) -> str:
    rows = sorted(found.latency, key=lambda row: -row["delivered"])
    cells = [
        [
            _route(row),
            escape(row["path"]),
            short(row["delivered"]),
            _ms(row["p50_ms"]),
            _ms(row["p95_ms"]),
            _ms(row["p99_ms"]),
            spark_line(
                [row[f"latency_{at:02d}"] for at in range(BUCKETS)], label="distribution, 0.25 ms to over 4 s"
            ),
        ]
        for row in rows[:MOST_ROWS]
    ]
    return _table(
        ["route", "path", "delivered", "p50", "p95", "p99", "0.25 ms … over 4 s"], cells, of=len(rows)
    )


def _refused(found: Findings) -> str:
    sums = [(name, _total(found.refusals, name)) for name in (*FAILURES, *INVALID)]
    rows = [(name.replace("_", " "), float(number), f"{number:,}") for name, number in sums]
    rows.sort(key=lambda row: -row[1])
    return bars(rows, label="refused commands by reason", name="failed")


def _escalated(found: Findings) -> str:
    reasons = [
        (name.replace("_", " "), _total(found.escalations, f"escalated_{name}")) for name in ESCALATIONS
    ]
    phases = [(f"cache {name}", _total(found.escalations, f"phase_{name}")) for name in PHASES]
    chart = bars(
        sorted(((name, float(number), f"{number:,}") for name, number in reasons), key=lambda row: -row[1]),
        label="escalations by reason",
        name="slow",
    )
    return chart + bars([(name, float(n), f"{n:,}") for name, n in phases], label="cache phases", name="fast")


def _fairness(found: Findings) -> str:
    by_source: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in found.shares:
        by_source.setdefault((row["source"], _plain_route(row)), []).append(row)
    scored = []
    for (source, route), windows in by_source.items():
        dominant = [row for row in windows if row["dominant"]]
        if dominant:
            worst = max(dominant, key=lambda row: row["warm_share"])
            scored.append((len(dominant), source, route, worst))
    scored.sort(key=lambda one: (-one[0], one[1]))
    cells = [
        [
            escape(source),
            escape(route),
            str(number),
            _percent(worst["warm_share"], 1),
            _percent(worst["competing_share"], 1),
            f"{worst['jain']:.2f}" if worst["jain"] is not None else "",
        ]
        for number, source, route, worst in scored[:MOST_ROWS]
    ]
    heads = ["source", "route", "dominant windows", "share at worst", "others offered", "Jain's index"]
    return _table(heads, cells, of=len(scored), none="Nobody was dominant.")


def _proposals(found: Findings) -> str:
    rows = sorted(found.proposals, key=lambda row: (row["window_start"], row["source"]))
    times = [row["window_start"].replace(tzinfo=None) for row in (*found.timeline, *rows)]
    said = clock((max(times) - min(times)).total_seconds()) if times else clock(0)
    cells = [
        [
            escape(row["source"]),
            escape(row["kind"]),
            escape(", ".join(row["affected_targets"] or [])),
            f"{row['total_violations']:,}",
            f"{row['window_start']:{said}}",
            f"{row['ban_applied_until']:{said}}",
            *_evidence(row),
        ]
        for row in rows[:MOST_ROWS]
    ]
    heads = [
        "source",
        "kind",
        "targets",
        "violations",
        "since",
        "ban until",
        "who suffered",
        "its share",
        "harm",
    ]
    return _table(heads, cells, of=len(rows), none="None.")


def _evidence(row: Mapping[str, Any]) -> list[str]:
    """Sources that went without, and the course of the share and of the harm; empty for what harms nobody by name."""
    told = json.loads(row.get("evidence") or "{}")
    victims = ", ".join(f"{escape(name)} {number:,}" for name, number in told.get("suffered", {}).items())
    courses = [
        spark_line(told[key], label=label) if told.get(key) else ""
        for key, label in (
            ("share_course", "its share by window"),
            ("harm_course", "others refused by window"),
        )
    ]
    return [victims, *courses]


def _clocks(found: Findings) -> str:
    rows = sorted(found.skew, key=lambda row: -abs(row["skew_seconds"] or 0))
    cells = [
        [
            escape(row["source"]),
            f"{row['skew_seconds']:+.2f} s",
            f"{row['worst_seconds']:.2f} s",
            f"{row['seconds_per_hour']:+.2f} s/h" if row["seconds_per_hour"] is not None else "",
            _danger(row),
        ]
        for row in rows[:MOST_ROWS]
    ]
    heads = ["source", "now", "worst", "trend", "refused in"]
    return _table(heads, cells, of=len(rows), none="No samples in this range.")


def _danger(row: Mapping[str, Any]) -> str:
    off = abs(row["skew_seconds"] or 0)
    if off >= SKEW_WINDOW_S:
        return "now"
    if row["hours_to_rejection"] is not None:
        return f"{row['hours_to_rejection']:.1f} h"
    # Steady, and a network that is slow for a moment is enough.
    return "near the limit" if off >= NEAR * SKEW_WINDOW_S else "no danger"


def _keys(found: Findings) -> str:
    by_version: dict[str, list[int]] = {}
    for row in found.keys:
        by_version.setdefault(row["key_version"], []).append(int(row["commands"] or 0))
    rows = [
        (
            version,
            float(sum(numbers)),
            f"{sum(numbers):,} commands by {len(numbers)} source" + "s" * (len(numbers) != 1),
        )
        for version, numbers in sorted(by_version.items())
    ]
    back = sorted(found.returned_keys, key=lambda row: (-row["returns"], row["source"], row["key_version"]))
    cells = [
        [
            escape(row["source"]),
            escape(row["key_version"]),
            f"{row['returns']:,}",
            f"{row['hours_away']:.1f} h",
            f"{row['last_return']:%Y-%m-%d %H:%M}",
        ]
        for row in back[:MOST_ROWS]
    ]
    heads = ["source", "key version that came back", "times", "away", "last return"]
    none = "No version came back after others had taken over."
    return bars(rows, label="commands by key version") + _table(heads, cells, of=len(back), none=none)


def _revoked(found: Findings) -> str:
    rows = sorted(found.revoked, key=lambda row: -row["commands"])
    cells = [[escape(row["source"]), _route(row), f"{row['commands']:,}"] for row in rows[:MOST_ROWS]]
    return _table(["source", "route", "commands"], cells, of=len(rows), none="None: every right held.")


def _section(title: str, about: str, body: str) -> str:
    return f'<section><h2>{title}</h2><p class="about">{about}</p>{body}</section>'


def _table(heads: list[str], cells: list[list[str]], *, of: int, none: str = "Nothing in this range.") -> str:
    if not cells:
        return f'<p class="none">{none}</p>'
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cells)
    more = f'<p class="none">and {of - len(cells)} more</p>' if of > len(cells) else ""
    # Wider than a phone: it moves within its box, and the page stays.
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _plain_route(row: Mapping[str, Any]) -> str:
    return f"{row['target']} · {row['command_name']}"


def _route(row: Mapping[str, Any]) -> str:
    return escape(_plain_route(row))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _ms(value: float | None) -> str:
    if value is None:
        return ""
    return f"≤ {value:g} ms" if math.isfinite(value) else f"&gt; {upper_ms(BUCKETS - 2):g} ms"


STYLE = """
:root{--ink:#1c2330;--soft:#677084;--paper:#fbfbfd;--card:#fff;--line:#e6e8ef;--fast:#2f7d6b;--slow:#d9a13b;
--failed:#c8553d;--invalid:#7b5ea7;--bar:#4a6fa5}
@media(prefers-color-scheme:dark){:root{--ink:#e7eaf2;--soft:#98a1b5;--paper:#14171f;--card:#1b2029;--line:#2c3340;
--fast:#4fae98;--slow:#e5b85c;--failed:#e07a62;--invalid:#a88bd0;--bar:#7a9fd4}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1000px;margin:0 auto;padding:32px 20px 64px}h1{font-size:28px;margin:0}
.range{color:var(--soft);margin:2px 0 20px}h2{font-size:18px;margin:0}.about{color:var(--soft);margin:0 0 12px}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 20px;margin:16px 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:12px 14px}
.tile b{display:block;font-size:24px;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.tile.good b{color:var(--fast)}.tile.bad b{color:var(--failed)}
svg{width:100%;height:auto;display:block}svg.tiny{width:150px;height:26px}
.grid{stroke:var(--line)}.axis,.label{fill:var(--soft);font-size:12px}.label{fill:var(--ink)}
.fast{fill:var(--fast);background:var(--fast)}.slow{fill:var(--slow);background:var(--slow)}
.failed{fill:var(--failed);background:var(--failed)}.invalid{fill:var(--invalid);background:var(--invalid)}
.bar{fill:var(--bar)}.legend{margin:0 0 6px}.key{margin-right:16px;color:var(--soft);font-size:13px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;color:var(--soft);font-weight:500;font-size:13px;border-bottom:1px solid var(--line);padding:4px 8px}
td{border-bottom:1px solid var(--line);padding:5px 8px}tr:last-child td{border-bottom:0}
.wide{overflow-x:auto}
.none{color:var(--soft);margin:4px 0}
"""
