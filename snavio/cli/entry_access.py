"""Parts of the commands about entries of the directory: the client, the list, the page about one, and the deletion.

Never deletes before it has told what depends on the entry and what waits in its queues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from snavio.cli.render import Block, Record, Table, TableColumn

if TYPE_CHECKING:
    from pathlib import Path

    from snavio.admin.entries import EntryClient, EntryDetails
    from snavio.cli.caller import Caller
    from snavio.config import MeshSettings
    from snavio.v1.registry_pb2 import DeleteEntryResponse

T = TypeVar("T")

Tenant = Annotated[
    str,
    typer.Option(help="Only of this tenant. Default: your own; an operator sees all."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what would go; delete nothing.")]
MOST = 10_000


def ask(caller: Caller, question: Callable[[EntryClient], Awaitable[T]]) -> T:
    """The answer of the running mesh's Registry."""
    return caller.ask_client(entry_client, question)


def entry_client(mesh: MeshSettings, certificates: Path) -> EntryClient:
    """The client for entries."""
    from snavio.admin.entries import EntryClient

    return EntryClient(mesh.registry, certificates=certificates, trust_domain=mesh.trust_domain)


async def gather(
    client: EntryClient, kind: str, *, tenant: str = "", target: str = "", most: int = MOST
) -> tuple[list[dict[str, Any]], bool]:
    """The documents of entries, at most so many; and whether there are more."""
    from snavio.cli.entry_views import entry_document

    found: list[dict[str, Any]] = []
    listing = client.entries(kind, tenant=tenant, target=target, limit=min(most + 1, 1000))
    try:
        async for value, version in listing:
            if len(found) == most:
                return found, True
            found.append(entry_document(kind, value) | {"version": version})
    finally:
        await listing.aclose()  # type: ignore[attr-defined]
    return found, False


def list_kind(
    caller: Caller,
    kind: str,
    columns: Sequence[TableColumn | str],
    *,
    plural: str,
    none: str,
    tenant: str = "",
    target: str = "",
    most: int = MOST,
    only: Callable[[dict[str, Any]], bool] = lambda _row: True,
) -> None:
    """Print the entries of a kind."""
    rows, more = ask(caller, lambda client: gather(client, kind, tenant=tenant, target=target, most=most))
    rows = [row for row in rows if only(row)]
    caller.show(
        {plural: rows, "more": more},
        Table(columns, rows, none=none),
        f"And more than these {len(rows)}; --limit shows them." if more else None,
    )


def page(caller: Caller, details: EntryDetails, kind: str, *blocks: Block, about: dict[str, Any]) -> None:
    """Print all about one entry: itself, when and by whom it was written, and what belongs to it."""
    from snavio.cli.entry_views import entry_document, limit_words, origin

    entry, written = entry_document(kind, details.value), origin(details)
    pairs: list[tuple[str, Any]] = []
    for name, value in entry.items():
        shown = limit_words(value) if name == "limit" else value
        words = ", ".join(shown) if isinstance(shown, list) else shown
        pairs.append((name.replace("_", " "), "-" if words in (None, "") else words))
    by = f" by {written['by']}" if written["by"] else ""
    why = f": {written['reason']}" if written["reason"] else ""
    pairs.append(("written", f"{written['since']}{by} (version {written['version']}){why}"))
    caller.show({kind: entry} | written | about, Record(pairs), *blocks)


def delete(caller: Caller, kind: str, *key: str, whole: bool, flag: str, dry_run: bool, reason: str) -> None:
    """Delete an entry, and tell what went with it, what stays, and what becomes of waiting messages."""
    from snavio.cli.entry_views import QUEUES
    from snavio.errors import Conflict

    async def carry_out(
        mesh: MeshSettings, certificates: Path
    ) -> tuple[DeleteEntryResponse, dict[str, int | None]]:
        async with entry_client(mesh, certificates) as client:
            told = await client.delete(kind, *key, with_dependents=whole, dry_run=True)
            # Asked before the deletion: afterwards it may be too late to think again.
            waiting = {
                queue.address: await _waiting(queue.address, mesh, certificates)
                for queue in told.queue
                if QUEUES[queue.kind] == "mailbox"
            }
            if dry_run:
                return told, waiting
            try:
                done = await client.delete(kind, *key, with_dependents=whole, reason=reason)
            except Conflict as error:
                if error.reason != "in-use":
                    raise
                have = _counts(told)
                raise Conflict(
                    f"The {kind} {'/'.join(key)} is in use: {have}. Delete those first, or all of it with {flag}.",
                    reason="in-use",
                ) from None
            return done, waiting

    told, waiting = caller.answer(carry_out)
    queues = [
        {"kind": QUEUES[queue.kind], "address": queue.address, "waiting": waiting.get(queue.address)}
        for queue in told.queue
    ]
    document = {
        "kind": kind,
        "key": list(key),
        "deleted": told.changed,
        "dry_run": dry_run,
        "version": told.version,
        "dependents": {each.kind: each.count for each in told.dependent},
        "with_dependents": whole,
        "queues": queues,
    }
    verb = "would be" if dry_run else "is"
    caller.show(
        document,
        f"The {kind} {' '.join(key)} {verb} deleted (version {told.version}).",
        f"{_counts(told)}: {_fate(kind, whole=whole, dry_run=dry_run, flag=flag)}."
        if told.dependent
        else None,
        *(_queue_words(**queue) for queue in queues),
    )


def _fate(kind: str, *, whole: bool, dry_run: bool, flag: str) -> str:
    if kind == "principal":
        return "these name it no more"
    if whole:
        return "these go with it"
    return f"these are in the way, without {flag}" if dry_run and kind != "route" else "these stay"


def _counts(told: DeleteEntryResponse) -> str:
    return ", ".join(f"{each.count} {each.kind.replace('_', ' ')}" for each in told.dependent)


def _queue_words(address: str, kind: str, waiting: int | None) -> str:
    if kind != "mailbox":
        return f"What waits in the {kind} queue {address} stays there."
    if waiting is None:
        return f"What waits in {address} stays there: the mailbox could not be asked how much that is."
    if not waiting:
        return f"Nothing waits in {address}."
    messages = "1 message waits" if waiting == 1 else f"{waiting} messages wait"
    return f"{messages} in {address} and can still be received there; nothing new comes by this route."


async def _waiting(topic: str, mesh: MeshSettings, certificates: Path) -> int | None:
    from snavio.admin.queue import QueueClient
    from snavio.errors import SnavioError

    try:
        async with QueueClient(
            mesh.mailbox,
            certificates=certificates,
            realm=topic,
            operations=("stats",),
            signer=mesh.signer,
            trust_domain=mesh.trust_domain,
        ) as queue:
            return sum(each.ready + each.inflight for each in await queue.stats(topic) if each.topic == topic)
    except SnavioError:
        return None
