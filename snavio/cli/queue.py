"""`snavio queue`: what waits for each target, what is dead and why, live; and the commands that put it right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.group import CommandGroup
from snavio.cli.queue_access import MailboxCaller, States, Topic, Tried, known, states
from snavio.cli.queue_changes import add_changes, dlq

if TYPE_CHECKING:
    from collections.abc import Callable

    from snavio.admin.queue import QueueClient, TopicMessage

queue = CommandGroup(
    "See what waits in the mailbox and what is dead, and put it right.",
    examples=(
        "snavio queue ls                          every topic in numbers",
        "snavio queue top                         the same, live, with rates",
        "snavio queue dlq ls acme/discord-bot     what is dead, and why",
        "snavio queue dlq reprocess acme/discord-bot --because max-attempts --yes",
    ),
)


@queue.command("ls")
def list_topics(
    prefix: Annotated[str, typer.Argument(help="Only topics that begin so, such as acme/.")] = "",
    *,
    caller: MailboxCaller,
) -> None:
    """Every topic in numbers, the fullest first.

    \b
    Examples:
      snavio queue ls
      snavio queue ls acme/ --as acme-ci
      snavio queue ls --json | jq '.topics[] | select(.dead > 0) | .topic'
    """
    from snavio.cli.queue_views import topic_document, topics_table

    found = [
        one for one in caller.ask_queue(lambda queue, _name: queue.stats()) if one.topic.startswith(prefix)
    ]
    found.sort(key=lambda one: (-one.ready - one.inflight, -one.dead, one.topic))
    rows = [topic_document(one) for one in found]
    none = f"No topic begins with {prefix!r}." if prefix else "No topics yet: the first message makes one."
    caller.show({"topics": rows}, topics_table(rows, none))


@queue.command()
def stats(topic: Topic, *, caller: MailboxCaller) -> None:
    """One topic: what is where, how full it is, what died and why.

    \b
    Examples:
      snavio queue stats acme/discord-bot
      snavio queue stats discord-bot --as acme-bot --json | jq .saturation
    """
    from snavio.cli.queue_views import topic_document, topic_record

    told = topic_document(caller.ask_queue(lambda queue, name: known(queue, name(topic))))
    caller.show(told, topic_record(told))


@queue.command()
def peek(
    topic: Topic,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="How many.")] = 10,
    caller: MailboxCaller,
) -> None:
    """The oldest messages that wait, with their payloads. Nothing is leased and no attempt is counted.

    \b
    Examples:
      snavio queue peek acme/discord-bot -n 3
      snavio queue peek acme/discord-bot --json | jq -r '.messages[].payload'
    """

    async def ask(queue: QueueClient, name: Callable[[str], str]) -> list[TopicMessage]:
        await known(queue, name(topic))
        return await queue.peek(name(topic), limit=limit)

    _show(caller, caller.ask_queue(ask, "peek"), f"Nothing waits in {topic}.")


@queue.command("find")
def find_messages(
    topic: Topic,
    *,
    state: States = None,
    which: Tried,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")] = 100,
    payload: Annotated[bool, typer.Option("--payload", help="Show payloads, too.")] = False,
    caller: MailboxCaller,
) -> None:
    """Messages by state, time and content, oldest first: the same filters that cancel, requeue and purge take.

    \b
    Examples:
      snavio queue find acme/discord-bot --state inflight
      snavio queue find acme/discord-bot --name notify-user --since 2h --payload
      snavio queue find acme/discord-bot --min-attempts 3 --json
    """
    chosen, only = states(state), which.narrowed()

    async def ask(queue: QueueClient, full: Callable[[str], str]) -> list[TopicMessage]:
        await known(queue, full(topic))
        return await up_to(queue, full(topic), chosen, limit, only, payload=payload)

    _show(caller, caller.ask_queue(ask, "list"), f"Nothing of that kind is in {topic}.")


@queue.command()
def top(
    prefix: Annotated[str, typer.Argument(help="Only topics that begin so, such as acme/.")] = "",
    *,
    interval: Annotated[str, typer.Option(metavar="<duration>", help="Measure rates over this time.")] = "1s",
    rounds: Annotated[int, typer.Option(min=0, help="End after so many; 0 goes on until Ctrl-C.")] = 0,
    rows: Annotated[int, typer.Option(min=1, help="Show at most so many topics.")] = 20,
    caller: MailboxCaller,
) -> None:
    """Topics live, the busiest first: messages in and out per second, depth, leased, oldest, DLQ.

    \b
    Examples:
      snavio queue top
      snavio queue top acme/ --interval 5
      snavio queue top --rounds 1 --json | jq '.topics[] | {topic, in_per_s}'
    """
    from snavio.cli.queue_top import watch
    from snavio.cli.times import read_span

    every_s = read_span(interval, option="--interval", least_s=0.2)

    shown: dict[str, Any] = {"prefix": prefix, "interval_s": every_s, "rounds": rounds, "rows": rows}
    caller.ask_queue(lambda queue, _name: watch(queue, **shown, json=caller.json))


async def up_to(
    queue: QueueClient,
    topic: str,
    chosen: tuple[Any, ...],
    limit: int,
    only: dict[str, Any],
    *,
    payload: bool = False,
) -> list[TopicMessage]:
    """The first `limit` messages."""
    found: list[TopicMessage] = []
    after = 0
    while len(found) < limit:
        some, after = await queue.page(
            topic, *chosen, after=after, limit=min(200, limit - len(found)), payload=payload, **only
        )
        found += some
        if not after:
            break
    return found


def _show(caller: MailboxCaller, found: list[TopicMessage], nothing: str) -> None:
    from snavio.cli.queue_views import message_document, messages_table

    caller.show({"messages": [message_document(one) for one in found]}, messages_table(found, nothing))


add_changes(queue)
queue.add_typer(dlq, name="dlq")
