"""Topics live: two readings of the mailbox's numbers, and the rates between them.

Never keeps more than the last reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from snavio.cli.output import count
from snavio.cli.queue_views import DEAD, FULL, LEASED, OLDEST, style, topic_document
from snavio.cli.render import BLANK, NUMBER, Block, Screen, Table, TableColumn
from snavio.clock import Clock, SystemClock

if TYPE_CHECKING:
    from snavio.admin.queue import QueueClient, TopicStats

COLUMNS = (
    "topic",
    TableColumn("in/s", "in_per_s", NUMBER),
    TableColumn("out/s", "out_per_s", NUMBER),
    TableColumn("depth", "ready", NUMBER),
    *(LEASED, OLDEST, DEAD, FULL),
)


@dataclass(frozen=True, slots=True)
class TopicRate:
    """One topic, and what moved per second since the reading before."""

    now: TopicStats
    in_per_s: float = 0.0
    out_per_s: float = 0.0

    def document(self) -> dict[str, Any]:
        """For `--json`, and as a row."""
        rates = {"in_per_s": round(self.in_per_s, 1), "out_per_s": round(self.out_per_s, 1)}
        return topic_document(self.now) | rates


def rates(
    before: Mapping[str, TopicStats], now: Sequence[TopicStats], elapsed_s: float
) -> tuple[TopicRate, ...]:
    """The busiest first. A topic that is new, or a mailbox that began to count anew, has moved nothing yet."""
    found = []
    for one in now:
        then = before.get(one.topic)
        if then is None or elapsed_s <= 0 or one.stored_total < then.stored_total:
            found.append(TopicRate(one))
            continue
        stored = one.stored_total - then.stored_total
        acked = max(0, one.acked_total - then.acked_total)
        found.append(TopicRate(one, stored / elapsed_s, acked / elapsed_s))
    found.sort(
        key=lambda one: (-one.in_per_s - one.out_per_s, -one.now.ready - one.now.inflight, one.now.topic)
    )
    return tuple(found)


async def watch(
    queue: QueueClient,
    *,
    prefix: str,
    interval_s: float,
    rounds: int,
    rows: int,
    json: bool,
    clock: Clock | None = None,
) -> None:
    """Show the topics again and again; `rounds` times, or until it is cancelled."""
    time = clock or SystemClock()
    before: dict[str, TopicStats] = {}
    taken_ns, shown = 0, 0
    with Screen(json=json) as screen:
        while True:
            now_ns = time.mono_ns()
            found = [one for one in await queue.stats() if one.topic.startswith(prefix)]
            reading = rates(before, found, (now_ns - taken_ns) / 1e9)
            first, before, taken_ns = not taken_ns, {one.topic: one for one in found}, now_ns
            # Without a screen to draw over, numbers without rates would only be in the way.
            if screen.live or not first:
                documents = [one.document() for one in reading]
                screen.show({"topics": documents}, *top_blocks(documents, rows, interval_s))
            shown += not first
            if rounds and shown >= rounds:
                return
            await asyncio.sleep(interval_s)


def top_blocks(topics: Sequence[dict[str, Any]], rows: int, interval_s: float) -> Iterator[Block]:
    """As a person sees it: all together, and the busiest topics."""
    into, out, depth = (count(sum(one[key] for one in topics)) for key in ("in_per_s", "out_per_s", "ready"))
    named = "1 topic" if len(topics) == 1 else f"{len(topics)} topics"
    title = f"{named}   in {into}/s   out {out}/s   depth {depth}"
    yield Table(COLUMNS, topics[:rows], none="No topics yet.", style=style, title=title)
    hidden = f"{len(topics) - rows} more topics; " if len(topics) > rows else ""
    yield f"{hidden}over {interval_s:g} s; Ctrl-C ends"
    yield BLANK
