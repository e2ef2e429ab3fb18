"""Key sets for people and for programs: a table, plain lines, one JSON document.

Never computes what Signer decides: whether a version may go was answered there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snavio.cli.output import ago, console, count, fancy, line

if TYPE_CHECKING:
    from snavio.v1.signer_pb2 import KeyHolder, KeysetStatus, KeyVersion, KeyVersionUse

_SECOND_NS = 1_000_000_000
# Shields ask about once a second.
SILENT_NS = 5 * _SECOND_NS


def document(status: KeysetStatus) -> dict[str, Any]:
    """A key set as JSON."""
    total = sum(use.last_day for use in status.use)
    return {
        "source": status.keyset.source,
        "primary": status.primary,
        "minimum": status.keyset.minimum or None,
        "last_poll": _moment(status.last_poll_unix_ns),
        "next_rotation": _moment(status.next_rotation_unix_ns),
        "traffic_observed_since": _moment(status.observed_since_unix_ns),
        "shields": [
            {
                "name": holder.name,
                "up_to_date": holder.up_to_date,
                "last_heard": _moment(holder.heard_unix_ns),
                "waited_for_until": _moment(holder.ends_unix_ns),
            }
            for holder in status.holder
        ],
        "versions": [
            {
                "version": version.version,
                "state": state(version),
                "ends": _moment(version.not_after_unix_ns),
                "ends_in_s": _left_s(version, status.now_unix_ns),
                "last_hour": use.last_hour,
                "last_24h": use.last_day,
                "share_24h": round(use.last_day / total, 4) if total else None,
                "last_used": _moment(use.last_used_unix_ns),
                "safe_to_retire": use.safe_to_retire,
                "reason": use.retire_reason,
            }
            for version, use in zip(status.keyset.version, status.use, strict=True)
        ],
    }


def show_list(statuses: Sequence[KeysetStatus]) -> None:
    """One row per source."""
    rows = [
        (
            status.keyset.source,
            status.primary or "none",
            ", ".join(
                f"{version.version} {state(version)}"
                for version in status.keyset.version
                if version.version != status.primary and state(version) in ("spreading", "previous")
            )
            or "-",
            _since(status.last_poll_unix_ns, status.now_unix_ns),
            _until(status.next_rotation_unix_ns, status.now_unix_ns),
        )
        for status in statuses
    ]
    _table(("source", "primary", "also accepted", "last poll", "next rotation"), rows)


def show_status(status: KeysetStatus) -> None:
    """Everything about one source."""
    now = status.now_unix_ns
    total = sum(use.last_day for use in status.use)
    line(
        f"{status.keyset.source}: signs with {status.primary or 'nothing'}; last poll "
        f"{_since(status.last_poll_unix_ns, now)}; next rotation {_until(status.next_rotation_unix_ns, now)}"
        + (f"; minimum {status.keyset.minimum}" if status.keyset.minimum else "")
    )
    pairs = list(zip(status.keyset.version, status.use, strict=True))
    _table(
        ("version", "state", "ends", "last hour", "last 24 h", "share"),
        [
            (
                version.version,
                state(version),
                _until(version.not_after_unix_ns, now) if version.not_after_unix_ns else "-",
                count(use.last_hour),
                count(use.last_day),
                f"{100 * use.last_day / total:.1f} %" if total else "-",
            )
            for version, use in pairs
        ],
    )
    line(spread_line(status))
    for version, use in pairs:
        if state(version) == "previous":
            line(retire_line(version, use))


def spread_line(status: KeysetStatus) -> str:
    """Who has the keys as they stand, and whom a rotation waits for."""
    holders = status.holder
    if not holders:
        return "No Shield has been heard."
    has = [holder for holder in holders if holder.up_to_date]
    names = f": {', '.join(map(_name, has))}" if has else ""
    said = f"{len(has)} of {len(holders)} Shields have these keys{names}."
    late = ", ".join(_late(holder, status.now_unix_ns) for holder in holders if not holder.up_to_date)
    if not late:
        return said
    spreading = [version.version for version in status.keyset.version if state(version) == "spreading"]
    return f"{said} {f'{spreading[0]} waits for' if spreading else 'Not yet'}: {late}."


def _late(holder: KeyHolder, now_ns: int) -> str:
    heard = _since(holder.heard_unix_ns, now_ns)
    if now_ns - holder.heard_unix_ns < SILENT_NS:
        return f"{_name(holder)} (heard {heard})"
    # One that speaks is waited for as long as it takes; one that does not, until it lets nothing in by itself.
    left = _span(max(0, holder.ends_unix_ns - now_ns) / _SECOND_NS)
    return f"{_name(holder)} (last heard {heard}, waited for {left} more at most)"


def _name(holder: KeyHolder) -> str:
    # Which life of the process it is stands in the JSON.
    return holder.name.partition(":")[0]


def retire_line(version: KeyVersion, use: KeyVersionUse) -> str:
    """The plain answer to the question that matters."""
    return f"Safe to retire {version.version}? {'Yes' if use.safe_to_retire else 'No'}: {use.retire_reason}."


def state(version: KeyVersion) -> str:
    """Such as `previous`."""
    from snavio.v1.signer_pb2 import KeyState

    return str(KeyState.Name(version.state)).removeprefix("KEY_STATE_").lower()


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    out = console()
    if fancy(out):
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
        for name in names:
            table.add_column(name)
        for row in rows:
            table.add_row(*row)
        out.print(table)
        return
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in [names, *rows]:
        line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _moment(unix_ns: int) -> str | None:
    if not unix_ns:
        return None
    return datetime.fromtimestamp(unix_ns // _SECOND_NS, UTC).isoformat().replace("+00:00", "Z")


def _left_s(version: KeyVersion, now_ns: int) -> int | None:
    if not version.not_after_unix_ns:
        return None
    return max(0, (version.not_after_unix_ns - now_ns) // _SECOND_NS)


def _since(unix_ns: int, now_ns: int) -> str:
    return f"{_span((now_ns - unix_ns) / _SECOND_NS)} ago" if unix_ns else "never"


def _until(unix_ns: int, now_ns: int) -> str:
    return f"in {_span((unix_ns - now_ns) / _SECOND_NS)}" if unix_ns > now_ns else "now"


def _span(seconds: float) -> str:
    days = int(seconds) // 86400
    return f"{days} d {int(seconds) % 86400 // 3600} h" if days else ago(max(0.0, seconds))
