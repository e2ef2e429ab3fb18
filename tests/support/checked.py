"""A `Delivery` that looks, after every step, whether each message is in exactly one place.

Every step of a batch is compared with the tables of `services/mailbox/state/states.py`: a message that changes its
state in a way that they do not list fails the test that made it do so.
"""

from __future__ import annotations

from functools import wraps
from typing import Any
from weakref import WeakSet

from services.mailbox.state.batch import Batch
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.leases import RangeLease
from services.mailbox.state.ranges import covered, ones
from services.mailbox.state.states import DECISIONS, STEPS, Verb, places
from services.mailbox.state.topics import Topic

WATCHED = {
    "topics": ("reserve", "release"),
    "window": ("stored", "refill", "sweep"),
    # Not `disown`: an operator's change disowns some batches after it has moved messages of others and before `begin`.
    "transitions": ("adopt", "begin", "confirm", "revert"),
    "endings": ("condemn", "expire_ready"),
    "": ("lease", "handed", "give_back", "set_aside", "settle", "extend", "tick", "withdraw"),
}
"""Steps from outside, by the part of the delivery that takes them."""


def check(delivery: Delivery) -> None:
    """AssertionError when some message is in two places or in none, or is counted where it is not."""
    held_of: dict[str, int] = {}
    for name in delivery.topics.names():
        topic = delivery.topics.topic(name)
        assert topic is not None
        for batch in (*topic.batches.values(), *topic.adopted.values()):
            _check_batch(batch)
        for _, _, what in delivery.window.timers._heap:
            if isinstance(what, RangeLease) and what.left and what.batch.topic == name:
                known = topic.batches.get(what.batch.batch_id)
                assert known is what.batch, f"{what.left} of {what.batch.batch_id} leased, which is not there"
        held = sum(hi - lo for batch in topic.batches.values() for lo, hi, _ in batch.held)
        assert topic.inflight == held, f"{name}: {topic.inflight} counted as leased, {held} are"
        held_of[topic.tenant] = held_of.get(topic.tenant, 0) + held
        assert topic.settling == _settling(topic), f"{name}: {topic.settling} counted as on their way"
        assert topic.messages == sum(topic.by_shard.values())
        for batch in topic.batches.values():
            _comes(delivery, topic, batch)
    assert delivery.inflight.total == sum(held_of.values())
    assert delivery.inflight.by_tenant == {tenant: held for tenant, held in held_of.items() if held}


def _check_batch(batch: Batch) -> None:
    """AssertionError unless each message is in exactly one place."""
    whole = ones(0, batch.count)
    assert batch.settled & ~whole == 0, f"batch {batch.batch_id}: settled beyond its end"
    held, delayed = covered(batch.held, batch.count), covered(batch.delayed, batch.count)
    moving, retries = covered(batch.settling, batch.count), covered(batch.retries, batch.count)
    ends = covered(batch.ends, batch.count)
    assert not held & delayed, f"batch {batch.batch_id}: leased and delayed"
    assert not held & moving, f"batch {batch.batch_id}: leased and on its way to disk"
    assert not delayed & moving, f"batch {batch.batch_id}: delayed and on its way to disk"
    assert not batch.settled & (held | delayed), f"batch {batch.batch_id}: ended, and leased or delayed"
    assert not batch.settled & retries, f"batch {batch.batch_id}: ended, and to be tried"
    assert not ends & ~batch.settled, f"batch {batch.batch_id}: an end of what has not ended"
    holding: dict[RangeLease, int] = {}
    for lo, hi, lease in batch.held:
        assert lease.batch is batch and lease.first <= lo < hi <= lease.end, (
            f"batch {batch.batch_id}: strange lease"
        )
        holding[lease] = holding.get(lease, 0) + hi - lo
    for lease, messages in holding.items():
        assert lease.left == messages, (
            f"batch {batch.batch_id}: a lease of {lease.left} that holds {messages}"
        )


def _settling(topic: Topic) -> int:
    """Messages on their way to disk that count as messages of the topic."""
    known = {id(batch): batch for batch in (*topic.batches.values(), *topic.adopted.values())}
    return sum(
        moved.messages
        for settling in {one for batch in known.values() for _, _, one in batch.settling}
        for moved in settling.moved
        if moved.batch.topic == topic.name and (not moved.ended or moved.verb is Verb.REVIVE)
    )


def _comes(delivery: Delivery, topic: Topic, batch: Batch) -> None:
    """Every message of a batch in memory that is due is in the queue, or something will bring it there."""
    due = [(at, what) for at, _, what in delivery.window.timers._heap]
    for lo, hi, lease in batch.held:
        assert any(what is lease for _, what in due), f"no end for the lease of {batch.batch_id}/{lo}..{hi}"
    for lo, hi, until in batch.delayed:
        awaited = 0
        for at, what in due:
            if not isinstance(what, RangeLease) and (what.topic, what.batch_id) == (
                topic.name,
                batch.batch_id,
            ):
                awaited |= ones(what.lo, what.hi) if at >= until else 0
        assert not ones(lo, hi) & ~awaited, f"no end for the delay of {batch.batch_id}/{lo}..{hi}"
    waiting = ones(0, batch.count) & ~batch.bound() & ~covered(batch.delayed, batch.count)
    for batch_id, lo, hi, attempt in topic.ready:
        if batch_id == batch.batch_id:
            for start, end in batch.free(lo, hi, attempt):
                waiting &= ~ones(start, end)
    assert not waiting, f"messages {waiting:b} of {batch.batch_id} wait, and are not in the line"


_checked_deliveries: WeakSet[CheckedDelivery] = WeakSet()


class CheckedDelivery(Delivery):
    """Every step from outside is followed by `check`, and every step of a batch by a look at the tables."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._depth = 0
        _checked_deliveries.add(self)
        for part, steps in WATCHED.items():
            owner = getattr(self, part) if part else self
            for name in steps:
                setattr(owner, name, self._checked(getattr(owner, name)))

    def _checked(self, step: Any) -> Any:
        @wraps(step)
        def checked(*args: Any, **named: Any) -> Any:
            self._depth += 1
            try:
                answer = step(*args, **named)
            finally:
                self._depth -= 1
            if not self._depth:
                check(self)
            return answer

        return checked


def _listed(name: str) -> Any:
    step = getattr(Batch, name)

    @wraps(step)
    def listed(batch: Batch, *args: Any, **named: Any) -> Any:
        if not _checked_deliveries:
            return step(batch, *args, **named)
        before = places(batch)
        answer = step(batch, *args, **named)
        after = places(batch)
        changes = {
            (one, other)
            for one, bits in before.items()
            for other, others in after.items()
            if one is not other and bits & others
        }
        assert changes <= STEPS[name], f"{name}: {changes - STEPS[name]} is in no table"
        if name in ("move", "confirm"):
            verb = (answer if name == "move" else args[0]).verb
            begins, ends = DECISIONS[verb]
            assert all(one in begins if name == "move" else other in ends for one, other in changes), verb
        assert sum(bits.bit_count() for bits in after.values()) == batch.count, (
            "a message in two states, or in none"
        )
        return answer

    return listed


for _name in STEPS:
    setattr(Batch, _name, _listed(_name))
