"""A `Delivery` that looks, after every step, whether each message is in exactly one place."""

from __future__ import annotations

from functools import wraps
from typing import Any

from services.mailbox.state.delivery import Delivery
from services.mailbox.state.leases import Batch, RangeLease, Verb
from services.mailbox.state.ranges import covered, ones
from services.mailbox.state.topics import Topic

STEPS = (
    *("reserve", "release", "stored", "refill"),
    # Not `disown`: an operator's change disowns some batches after it has moved messages of others and before `begin`.
    *("adopt", "begin", "confirm", "revert"),
    *("lease", "handed", "give_back", "set_aside", "settle", "extend", "tick"),
    *("condemn", "expire_ready", "sweep", "withdraw"),
)


def check(delivery: Delivery) -> None:
    """AssertionError when some message is in two places or in none, or is counted where it is not."""
    held_of: dict[str, int] = {}
    for name in delivery.names():
        topic = delivery.topic(name)
        assert topic is not None
        for batch in (*topic.batches.values(), *topic.adopted.values()):
            batch.check()
        for _, _, what in delivery._timers._heap:
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
    assert delivery.inflight == sum(held_of.values())
    assert delivery._tenants == {tenant: held for tenant, held in held_of.items() if held}


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
    """What is to be delivered of a batch in memory is in the line, or something will bring it there."""
    due = [(at, what) for at, _, what in delivery._timers._heap]
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


class CheckedDelivery(Delivery):
    """Every step from outside is followed by `check`."""

    _depth = 0


def _checked(name: str) -> Any:
    step = getattr(Delivery, name)

    @wraps(step)
    def checked(self: CheckedDelivery, *args: Any, **named: Any) -> Any:
        self._depth += 1
        try:
            answer = step(self, *args, **named)
        finally:
            self._depth -= 1
        if not self._depth:
            check(self)
        return answer

    return checked


for _name in STEPS:
    setattr(CheckedDelivery, _name, _checked(_name))
