"""Key sets as documents, rows and sentences.

Never computes what Signer decides: whether a version may go was answered there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from snavio.cli.output import ago
from snavio.cli.render import NUMBER, Block, Kind, Table, TableColumn, picked, time_text

if TYPE_CHECKING:
    from snavio.v1.signer_pb2 import KeyHolder, KeysetStatus, KeyVersion, KeyVersionUse

_SECOND_NS = 1_000_000_000
# Shields ask about once a second.
PERCENT = Kind(lambda part: f"{100 * part:.1f} %", right=True)
SILENT_NS = 5 * _SECOND_NS


def document(status: KeysetStatus) -> dict[str, Any]:
    """A key set as JSON."""
    total = sum(use.last_day for use in status.use)
    return {
        "source": status.keyset.source,
        "primary": status.primary,
        "minimum": status.keyset.minimum or None,
        "last_poll": time_text(status.last_poll_unix_ns),
        "next_rotation": time_text(status.next_rotation_unix_ns),
        "rehearsal": _rehearsal(status),
        "traffic_observed_since": time_text(status.observed_since_unix_ns),
        "shields": [
            {
                "name": holder.name or None,
                "up_to_date": holder.up_to_date,
                "last_heard": time_text(holder.heard_unix_ns),
                "waited_for_until": time_text(holder.ends_unix_ns),
            }
            for holder in status.holder
        ],
        "versions": [
            {
                "version": version.version,
                "state": state(version),
                "ends": time_text(version.not_after_unix_ns),
                "ends_in_s": _left_s(version, status.now_unix_ns),
                **picked(use, "last_hour", "safe_to_retire"),
                "last_24h": use.last_day,
                "last_48h": use.last_two_days,
                "share_24h": round(use.last_day / total, 4) if total else None,
                "last_used": time_text(use.last_used_unix_ns),
                "reason": use.retire_reason,
            }
            for version, use in zip(status.keyset.version, status.use, strict=True)
        ],
    }


def listed(statuses: Sequence[KeysetStatus]) -> Table:
    """A row per source."""
    rows = [
        {
            "source": status.keyset.source,
            "primary": status.primary or "none",
            "also accepted": ", ".join(
                f"{version.version} {state(version)}"
                for version in status.keyset.version
                if version.version != status.primary and state(version) in ("spreading", "previous")
            ),
            "last poll": _since(status.last_poll_unix_ns, status.now_unix_ns),
            "next rotation": _until(status.next_rotation_unix_ns, status.now_unix_ns),
        }
        for status in statuses
    ]
    titles = ("source", "primary", "also accepted", "last poll", "next rotation")
    return Table(titles, rows, none="No source has keys yet: registering a service makes them.")


def status_blocks(status: KeysetStatus) -> Iterator[Block]:
    """All that is known of one source's keys."""
    now = status.now_unix_ns
    yield (
        f"{status.keyset.source}: {_signing(status)}; last poll "
        f"{_since(status.last_poll_unix_ns, now)}; next rotation {_until(status.next_rotation_unix_ns, now)}"
        + (f"; minimum {status.keyset.minimum}" if status.keyset.minimum else "")
    )
    pairs = list(zip(status.keyset.version, status.use, strict=True))
    ends = TableColumn("ends", lambda row: f"in {_span(row['ends_in_s'])}" if row["ends"] else None)
    use = (
        TableColumn("last hour", "last_hour", NUMBER),
        TableColumn("last 24 h", "last_24h", NUMBER),
        TableColumn("last 48 h", "last_48h", NUMBER),
    )
    yield Table(
        ("version", "state", ends, *use, TableColumn("share", "share_24h", PERCENT)),
        document(status)["versions"],
    )
    yield spread_line(status)
    yield rehearsal_line(status)
    for version, used in pairs:
        if state(version) == "previous":
            yield retire_line(version, used)


def _signing(status: KeysetStatus) -> str:
    """The version to sign with, and which ones the commands of the last hour were really signed with."""
    primary = status.primary or "nothing"
    used = [
        (version.version, use.last_hour)
        for version, use in zip(status.keyset.version, status.use, strict=True)
        if use.last_hour
    ]
    others = [f"{count} with {version}" for version, count in used if version != primary]
    if not others:
        return f"signs with {primary}"
    total = sum(count for _, count in used)
    return f"is to sign with {primary}; of {total} commands in the last hour, {' and '.join(others)}"


def spread_line(status: KeysetStatus) -> str:
    """The Shields that have these keys, and those that a rotation waits for."""
    holders = status.holder
    if not holders:
        return "No Shield has been heard."
    has = [holder for holder in holders if holder.up_to_date]
    # A tenant sees how many Shields there are, not what they are called.
    names = f": {', '.join(map(_name, has))}" if has and all(holder.name for holder in has) else ""
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
    return holder.name.partition(":")[0] or "a Shield"


def retire_line(version: KeyVersion, use: KeyVersionUse) -> str:
    """The plain answer to the question that matters."""
    return f"Safe to retire {version.version}? {'Yes' if use.safe_to_retire else 'No'}: {use.retire_reason}."


def rehearsal_line(status: KeysetStatus) -> str:
    """The count of a rehearsal; empty if there is none."""
    if not status.HasField("rehearsal"):
        return ""
    one, now = status.rehearsal, status.now_unix_ns
    span = _since(one.since_unix_ns, now)
    last = f", the last {_since(one.last_unix_ns, now)}" if one.would_refuse else ""
    return (
        f"Rehearsing a minimum of {one.minimum}, begun {span}: it would have refused {one.would_refuse:,} "
        f"command{'' if one.would_refuse == 1 else 's'}{last}. Nothing is refused for it."
    )


def _rehearsal(status: KeysetStatus) -> dict[str, Any] | None:
    if not status.HasField("rehearsal"):
        return None
    one = status.rehearsal
    return {
        "minimum": one.minimum,
        "since": time_text(one.since_unix_ns),
        "would_refuse": one.would_refuse,
        "last": time_text(one.last_unix_ns) if one.last_unix_ns else None,
    }


def state(version: KeyVersion) -> str:
    """Such as `previous`."""
    from snavio.v1.signer_pb2 import KeyState

    return str(KeyState.Name(version.state)).removeprefix("KEY_STATE_").lower()


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
