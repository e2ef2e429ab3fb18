"""Topics live: two readings of the mailbox's numbers, and the rates between them.

Never keeps more than the last reading.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from snavio.cli.output import console, count, fancy, line, print_json
from snavio.cli.queue_views import oldest, style, topic_document
from snavio.cli.render import share_text
from snavio.clock import Clock, SystemClock

if TYPE_CHECKING:
    from snavio.admin.queue import QueueClient, TopicStats

NAMES = ("topic", "in/s", "out/s", "depth", "leased", "oldest", "dlq", "full")


@dataclass(frozen=True, slots=True)
class TopicRate:
    """One topic, and what moved per second since the reading before."""

    now: TopicStats
    in_per_s: float = 0.0
    out_per_s: float = 0.0

    @property
    def cells(self) -> tuple[str, ...]:
        """A row under `NAMES`."""
        now = self.now
        rates = (count(self.in_per_s), count(self.out_per_s))
        age, full = oldest(topic_document(now)), share_text(now.saturation)
        held = (count(now.ready), count(now.inflight), age, count(now.dead), full)
        return (now.topic, *rates, *held)

    def document(self) -> dict[str, Any]:
        """For `--json`."""
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
    time, out = clock or SystemClock(), console()
    live = Live(console=out, auto_refresh=False) if fancy(out) and not json else None
    before: dict[str, TopicStats] = {}
    taken_ns, shown = 0, 0
    with live or contextlib.nullcontext():
        while True:
            now_ns = time.mono_ns()
            found = [one for one in await queue.stats() if one.topic.startswith(prefix)]
            reading = rates(before, found, (now_ns - taken_ns) / 1e9)
            first, before, taken_ns = not taken_ns, {one.topic: one for one in found}, now_ns
            if live is not None:
                live.update(view(reading, rows, interval_s), refresh=True)
            elif not first:
                # Without a screen to draw over, numbers without rates would only be in the way.
                _print(reading, rows, json=json)
            shown += not first
            if rounds and shown >= rounds:
                return
            await asyncio.sleep(interval_s)


def view(reading: Sequence[TopicRate], rows: int, interval_s: float) -> Table:
    """As a person sees it."""
    into = count(sum(one.in_per_s for one in reading))
    out = count(sum(one.out_per_s for one in reading))
    depth = count(sum(one.now.ready for one in reading))
    topics = "1 topic" if len(reading) == 1 else f"{len(reading)} topics"
    title = f"{topics}   in {into}/s   out {out}/s   depth {depth}"
    hidden = f"{len(reading) - rows} more topics; " if len(reading) > rows else ""
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
        title=title,
        title_justify="left",
        caption=f"{hidden}over {interval_s:g} s; Ctrl-C ends",
        caption_justify="left",
    )
    for place, name in enumerate(NAMES):
        table.add_column(name, justify="right" if place else "left", overflow="ellipsis", no_wrap=True)
    for one in reading[:rows]:
        table.add_row(*(Text(cell) for cell in one.cells), style=style(topic_document(one.now)))
    return table


def _print(reading: Sequence[TopicRate], rows: int, *, json: bool) -> None:
    if json:
        print_json({"topics": [one.document() for one in reading]})
        return
    for one in reading[:rows]:
        topic, *cells = one.cells
        line(topic + "  " + "  ".join(f"{name} {cell}" for name, cell in zip(NAMES[1:], cells, strict=True)))
    line("" if reading else "No topics yet.")
