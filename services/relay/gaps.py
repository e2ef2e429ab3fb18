"""Derives what a journal page adds to the known state of its writer, and how many events are missing.

Never takes an event twice and never lets one go missing in silence: the numbers decide, whatever the page claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from snavio.errors import BadRequest
from snavio.ports.outbox import JournalLife, NewPage
from snavio.telemetry.events import JournalGap

HEARD_NS: Final = 86_400 * 1_000_000_000
Lives = Mapping[tuple[str, int], JournalLife]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A journal page as it came in, from a writer whose present life is `present_epoch`."""

    service: str
    instance: str
    present_epoch: int
    epoch: int
    first_seq: int
    blocks: Sequence[tuple[int, bytes]] = ()
    """(events, block field) in order."""
    ended: Sequence[tuple[int, int]] = ()
    """(epoch, last number) of lives that are over."""


@dataclass(slots=True)
class Addition:
    """Pages, lives and gaps that an arrival adds."""

    pages: list[NewPage] = field(default_factory=list)
    lives: dict[tuple[str, int], JournalLife] = field(default_factory=dict)
    gaps: list[JournalGap] = field(default_factory=list)


def add(arrival: Arrival, lives: Lives, *, now_unix_ns: int) -> Addition:
    """The addition to store for `arrival`. BadRequest when its numbers contradict earlier pages."""
    addition = Addition()
    for ended in arrival.ended:
        _end(arrival, ended, lives, addition, now_unix_ns)
    if arrival.blocks and arrival.epoch == arrival.present_epoch:
        _miss_the_silent(arrival, lives, addition)
    key = (arrival.instance, arrival.epoch)
    life = lives.get(key) or JournalLife(arrival.instance, arrival.epoch, arrival.service, 0)
    if not life.closed:
        durable = _blocks(arrival, life.durable_seq, addition, now_unix_ns)
        # Not at every page: a writer comes back every hour at least, and a day is near enough for a month.
        stale = now_unix_ns - life.heard_unix_ns > HEARD_NS
        if durable != life.durable_seq or key not in lives or stale:
            addition.lives[key] = replace(life, durable_seq=durable, heard_unix_ns=now_unix_ns)
    return addition


def _blocks(arrival: Arrival, durable: int, addition: Addition, now_unix_ns: int) -> int:
    seq = arrival.first_seq
    fresh: list[bytes] = []
    first = 0
    for events, raw in arrival.blocks:
        last = seq + events - 1
        if last <= durable:
            seq = last + 1
            continue
        if seq <= durable:
            raise BadRequest("A block begins with events that came before and ends with new ones.")
        if seq > durable + 1:
            reason = "overflow" if arrival.epoch == arrival.present_epoch else "crash"
            addition.gaps.append(_gap(arrival.instance, arrival.epoch, durable + 1, seq - 1, reason))
        first = first or seq
        fresh.append(raw)
        durable = last
        seq = last + 1
    if fresh:
        addition.pages.append(
            NewPage(arrival.instance, arrival.epoch, first, durable, now_unix_ns, b"".join(fresh))
        )
    return durable


def _end(
    arrival: Arrival, ended: tuple[int, int], lives: Lives, addition: Addition, now_unix_ns: int
) -> None:
    epoch, last_seq = ended
    if epoch == arrival.present_epoch:
        raise BadRequest("A journal says that its own life is over.")
    key = (arrival.instance, epoch)
    life = lives.get(key) or JournalLife(arrival.instance, epoch, arrival.service, 0)
    if life.closed:
        return
    if last_seq > life.durable_seq:
        addition.gaps.append(_gap(arrival.instance, epoch, life.durable_seq + 1, last_seq, "crash"))
    durable = max(last_seq, life.durable_seq)
    addition.lives[key] = replace(life, durable_seq=durable, closed=True, heard_unix_ns=now_unix_ns)


def _miss_the_silent(arrival: Arrival, lives: Lives, addition: Addition) -> None:
    """Gaps for earlier lives without a reported end, as after a power cut or a lost state folder."""
    for key, life in lives.items():
        if key[0] != arrival.instance or life.epoch >= arrival.present_epoch:
            continue
        if not life.closed and key not in addition.lives:
            addition.gaps.append(
                JournalGap(
                    dropped_events=None,
                    reason="unknown",
                    detail=f"{life.instance} epoch {life.epoch}: nobody knows what came after {life.durable_seq}",
                )
            )
            addition.lives[key] = replace(life, closed=True)


def _gap(instance: str, epoch: int, first: int, last: int, reason: str) -> JournalGap:
    return JournalGap(
        dropped_events=last - first + 1, reason=reason, detail=f"{instance} epoch {epoch}: {first} to {last}"
    )
