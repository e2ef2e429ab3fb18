"""`snavio log`: the log of changes of the directory, past and as they come."""

from __future__ import annotations

import asyncio
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import Caller
from snavio.cli.entry_access import Tenant, entry_client
from snavio.cli.output import line, print_json
from snavio.cli.render import one_line, show_blocks, time_text
from snavio.cli.times import Period

if TYPE_CHECKING:
    from pathlib import Path

    from snavio.config import MeshSettings
    from snavio.v1.registry_pb2 import Change

PAUSE_SECONDS = 1.0
DAY_NS = 86_400_000_000_000
WIDTH = 80


def log(
    *,
    tenant: Tenant = "",
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            "-k",
            help="Only such as route, acl or ban; may be said several times.",
        ),
    ] = None,
    period: Period,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what comes, until Ctrl-C.")] = False,
    caller: Caller,
) -> None:
    """Read the log of changes of the directory: who changed what, when and why.

    Without --since, the last day. A tenant's principal reads the changes of what is the tenant's; the names and
    reasons of others are not shown to it. With --json, one document per line.

    \b
    Examples:
      snavio log
      snavio log --tenant acme --kind route --kind acl --since 7d
      snavio log --follow --json | jq -c '{kind, key, by}'
    """
    from snavio.clock import SystemClock

    now = SystemClock().unix_ns()
    begin, end = period.read_past(now_unix_ns=now)
    begin = (max(1, now - DAY_NS) if end is None else 0) if begin is None else begin

    async def read(mesh: MeshSettings, certificates: Path) -> int:
        shown, version = 0, 0
        async with entry_client(mesh, certificates) as client:
            while True:
                pages = client.log(
                    tenant=tenant,
                    kinds=kind or (),
                    since_version=version,
                    # From the first answer on by version: of two changes at one time none is shown twice.
                    from_unix_ns=0 if version else begin,
                    to_unix_ns=end or 0,
                )
                async for changes, version in pages:  # noqa: B007  the last version is where the next reading begins
                    for change in changes:
                        shown += 1
                        _print(change, json=caller.json)
                if not follow:
                    return shown
                await asyncio.sleep(PAUSE_SECONDS)

    try:
        shown = caller.answer(read)
    except KeyboardInterrupt:
        return
    if not shown and not caller.json:
        since = period.since or "1d"
        line(f"Nothing changed since {since}; `--since 30d` looks further back.")


def _print(change: Change, *, json: bool) -> None:
    document = _document(change)
    if json:
        print_json(document)
        return
    by = document["by"] or ""
    who = by.rpartition("://")[2].partition("/")[2] or by
    mark = {"added": "+", "changed": "~", "deleted": "-"}[document["change"]]
    head = f"{document['at']}  {document['version']:>6}  {mark} {document['kind'].replace('_', ' ')} "
    blocks = [_fitted(head + document["words"])]
    if moved := document["moved"]:
        blocks += [_fitted(f"{'':32}{each}") for each in moved]
    tail = ", ".join(part for part in (f"by {who}" if who else "", document["reason"] or "") if part)
    if tail:
        blocks.append(_fitted(f"{'':32}{tail}"))
    show_blocks(part for block in blocks for part in block)


def _fitted(text: str) -> list[str]:
    """Lines of at most 80 columns: broken between words, and inside a name only if no line could hold it."""
    return wrap(
        one_line(text, most=0),
        WIDTH,
        subsequent_indent=" " * 34,
        break_on_hyphens=False,
        # What is printed stays what was written, so that it can be copied.
        replace_whitespace=False,
        expand_tabs=False,
    )


def _document(change: Change) -> dict[str, Any]:
    from snavio.cli.entry_views import entry_document, key_words

    kind = str(change.WhichOneof("value"))
    value = getattr(change, kind)
    before = getattr(change.before, kind) if change.HasField("before") else None
    what = "deleted" if change.deleted else "added" if before is None else "changed"
    new, old = entry_document(kind, value), entry_document(kind, before) if before is not None else None
    moved = (
        [f"{name}: {_words(old[name])} → {_words(new[name])}" for name in new if old[name] != new[name]]
        if old is not None and what == "changed"
        else []
    )
    return {
        "version": change.version,
        "at": time_text(change.at_unix_ns),
        "kind": kind,
        "change": what,
        "words": key_words(kind, value),
        "moved": moved,
        "by": change.actor or None,
        "reason": change.reason or None,
        "before": old,
        "after": None if change.deleted else new,
    }


def _words(value: Any) -> str:
    from snavio.cli.entry_views import limit_words

    if isinstance(value, dict):
        return limit_words(value) or "-"
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return "-" if value in (None, "") else str(value)
