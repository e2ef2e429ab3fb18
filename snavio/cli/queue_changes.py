"""`snavio queue cancel|resume|requeue|purge` and `snavio queue dlq`: changes of messages, by id or by filter.

Never changes anything by filter without `--yes`: without it, it tells what would be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.group import CommandGroup
from snavio.cli.queue_access import Dead, MailboxCaller, States, Stored, Topic, Tried, known, states
from snavio.cli.render import Block

if TYPE_CHECKING:
    from snavio.admin.queue import Preview, QueueClient, TopicMessage
    from snavio.domain.message import MessageState

MOST_SHOWN = 10_000
DONE = {"cancel": "canceled", "resume": "resumed", "requeue": "requeued", "purge": "purged"}

MAX_MESSAGE_ID = 2**64 - 1
Ids = Annotated[
    list[int] | None,
    typer.Argument(
        min=1, max=MAX_MESSAGE_ID, help="Message ids, to be changed at once; or none, and a filter."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it. Without, a change by filter is only shown.")]
AtMost = Annotated[
    int | None, typer.Option("--at-most", min=0, help="With --yes: do nothing if more than so many match.")
]
Why = Annotated[str, typer.Option("--reason", "-r", help="Why; kept with the messages.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """Options of a change: confirmation, the most messages, the reason, the caller and the output."""

    yes: Yes = False
    at_most: AtMost = None
    reason: Why = ""
    caller: MailboxCaller


dlq = CommandGroup(
    "See what is dead and why; reprocess or delete it. Nothing leaves the DLQ for its topic by itself.",
    examples=(
        "snavio queue dlq ls acme/discord-bot",
        "snavio queue dlq reprocess acme/discord-bot --because max-attempts",
        "snavio queue dlq delete acme/discord-bot --until 7d --yes",
    ),
)


def _carry_out(
    operation: str,
    topic: str,
    ids: list[int] | None,
    *,
    chosen: tuple[MessageState, ...],
    only: dict[str, Any],
    options: ChangeOptions,
    dead_only: bool = False,
) -> None:
    from snavio.cli.queue_views import preview_blocks, preview_document
    from snavio.errors import BadRequest, Conflict

    yes, at_most, reason = options.yes, options.at_most, options.reason
    if ids and (only or (chosen and not dead_only)):
        raise BadRequest("Name either message ids or a filter, not both.", reason="ids-or-filter")
    if operation == "purge" and not ids and not chosen:
        raise BadRequest(
            "Say which to purge: --state ready, delivered, dead or canceled; or message ids.",
            reason="purge-all",
        )

    async def by_ids(queue: QueueClient, full: str) -> int:
        if dead_only:
            await _require_dead(queue, full, ids or [])
        change = getattr(queue, operation)
        return int(await change(full, ids or [], reason=reason))

    async def by_filter(queue: QueueClient, full: str) -> tuple[Preview, int]:
        look = getattr(queue, f"preview_{operation}")
        preview: Preview = await look(full, *chosen, reason=reason, **only)
        if yes and at_most is not None and preview.matched > at_most:
            raise Conflict(
                f"{preview.matched} messages match, more than --at-most {at_most}: nothing was changed.",
                reason="more-than-expected",
            )
        return preview, await preview.apply() if yes and preview.matched else 0

    async def ask(queue: QueueClient, name: Callable[[str], str]) -> tuple[Preview | None, int]:
        full = name(topic)
        await known(queue, full)
        return (None, await by_ids(queue, full)) if ids else await by_filter(queue, full)

    preview, changed = options.caller.ask_queue(ask, "list", "manage")
    done = DONE[operation]
    if preview is None:
        named = len(set(ids or []))
        rest = f"; {named - changed} were not in a state for that" if changed < named else ""
        options.caller.show(
            {"operation": operation, "topic": topic, "named": named, "changed": changed},
            f"{changed} of {named} {done}{rest}.",
        )
        return
    told = {"operation": operation, "topic": topic, "applied": yes, "changed": changed}
    if yes and preview.matched:
        said: Iterable[Block] = [f"{changed} of {preview.matched} messages {done}."]
    else:
        said = preview_blocks(preview, f"would be {done}")
    options.caller.show(told | preview_document(preview), *said)


async def _require_dead(queue: QueueClient, topic: str, ids: list[int]) -> None:
    """A number that was mistyped must not touch a message that is alive."""
    from snavio.domain.message import MessageState
    from snavio.errors import NotFound

    for msg_id in sorted(set(ids)):
        found, _ = await queue.page(topic, MessageState.DEAD, after=msg_id - 1, limit=1)
        if not found or found[0].msg_id != msg_id:
            raise NotFound(
                f"Message {msg_id} is not in the DLQ of {topic}: `snavio queue dlq ls` shows what is.",
                reason="not-dead",
            )


def cancel(
    topic: Topic, ids: Ids = None, *, state: States = None, which: Tried, options: ChangeOptions
) -> None:
    """Take messages out, ready, leased or dead ones. They are kept, and `resume` puts them back.

    \b
    Examples:
      snavio queue cancel acme/discord-bot 5121 5122 --reason "sent twice"
      snavio queue cancel acme/discord-bot --since 15m          only shows
      snavio queue cancel acme/discord-bot --since 15m --yes    does it
    """
    _carry_out("cancel", topic, ids, chosen=states(state), only=which.narrowed(), options=options)


def resume(topic: Topic, ids: Ids = None, *, which: Stored, options: ChangeOptions) -> None:
    """Put canceled messages back, at the attempt that they had reached.

    \b
    Examples:
      snavio queue resume acme/discord-bot 5121
      snavio queue resume acme/discord-bot --since 1h --yes
    """
    _carry_out("resume", topic, ids, chosen=(), only=which.narrowed(), options=options)


def requeue(
    topic: Topic, ids: Ids = None, *, state: States = None, which: Tried, options: ChangeOptions
) -> None:
    """Make dead, canceled, delivered or delayed messages ready now, with all attempts before them.

    \b
    Examples:
      snavio queue requeue acme/discord-bot 5121
      snavio queue requeue acme/discord-bot --state delivered --since 10m --yes
    """
    _carry_out("requeue", topic, ids, chosen=states(state), only=which.narrowed(), options=options)


def purge(
    topic: Topic, ids: Ids = None, *, state: States = None, which: Tried, options: ChangeOptions
) -> None:
    """Delete messages; there is no way back. By filter, the states have to be named.

    \b
    Examples:
      snavio queue purge acme/discord-bot --state ready --until 2d
      snavio queue purge acme/discord-bot --state ready --until 2d --yes
    """
    _carry_out("purge", topic, ids, chosen=states(state), only=which.narrowed(), options=options)


@dlq.command("ls")
def list_dead(
    topic: Topic,
    *,
    which: Dead,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST_SHOWN, help="At most so many.")
    ] = 100,
    payload: Annotated[bool, typer.Option("--payload", help="Show payloads, too.")] = False,
    caller: MailboxCaller,
) -> None:
    """Dead messages with reason, attempt and last error, oldest first.

    \b
    Examples:
      snavio queue dlq ls acme/discord-bot
      snavio queue dlq ls acme/discord-bot --because nack-dead --payload
      snavio queue dlq ls acme/discord-bot --json | jq '.messages[].last_error'
    """
    from snavio.cli.queue import up_to
    from snavio.cli.queue_views import dead_blocks, message_document
    from snavio.domain.message import MessageState

    only = which.narrowed()

    async def ask(queue: QueueClient, full: Callable[[str], str]) -> tuple[list[TopicMessage], int]:
        total = (await known(queue, full(topic))).dead
        return await up_to(queue, full(topic), (MessageState.DEAD,), limit, only, payload=payload), total

    found, total = caller.ask_queue(ask, "list")
    nothing = f"Nothing of that kind is dead in {topic}." if only else f"Nothing is dead in {topic}."
    caller.show(
        {"dead": total, "messages": [message_document(one) for one in found]},
        *(dead_blocks(found, total) if found else [nothing]),
    )


@dlq.command("reprocess")
def reprocess(topic: Topic, ids: Ids = None, *, which: Dead, options: ChangeOptions) -> None:
    """Make dead messages ready again, with all attempts before them.

    \b
    Examples:
      snavio queue dlq reprocess acme/discord-bot 5121
      snavio queue dlq reprocess acme/discord-bot --since 2h          only shows
      snavio queue dlq reprocess acme/discord-bot --since 2h --yes    does it
    """
    _of_the_dlq("requeue", topic, ids, which, options)


@dlq.command("delete")
def delete(topic: Topic, ids: Ids = None, *, which: Dead, options: ChangeOptions) -> None:
    """Delete dead messages; there is no way back.

    \b
    Examples:
      snavio queue dlq delete acme/discord-bot 5121
      snavio queue dlq delete acme/discord-bot --until 7d --yes
    """
    _of_the_dlq("purge", topic, ids, which, options)


def _of_the_dlq(
    operation: str, topic: str, ids: list[int] | None, which: Dead, options: ChangeOptions
) -> None:
    from snavio.domain.message import MessageState

    only = which.narrowed()
    _carry_out(operation, topic, ids, chosen=(MessageState.DEAD,), only=only, options=options, dead_only=True)


def add_changes(app: typer.Typer) -> None:
    """The commands that stand beside `ls` and `top`."""
    for command in (cancel, resume, requeue, purge):
        app.command()(command)
