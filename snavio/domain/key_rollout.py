"""Whether a new HMAC key version has reached every Shield that could meet a command signed with it.

Pure. Never calls a Shield gone that may still let commands in with the keys that it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """A Shield, and which version of the key store it works with."""

    name: str
    """Of this one life of the process: its next one may begin with older keys."""
    store_epoch: int
    version: int
    heard_ns: int
    good_for_ns: int
    """How long it goes on with what it has when it cannot ask. Then it lets nothing in until it has asked again."""

    def has(self, *, store_epoch: int, version: int) -> bool:
        """Whether it works with that version of the store, or a later one."""
        return self.store_epoch == store_epoch and self.version >= version

    def ends_ns(self, *, since_ns: int, now_ns: int) -> int:
        """From when it lets nothing in, unless it is heard again.

        `since_ns` is from when its silence counts at the earliest: who listens only since then, or did not write
        down what it heard before, does not know of silence before. What was heard in the future was heard before a
        clock was set back.
        """
        heard_ns = self.heard_ns if self.heard_ns <= now_ns else since_ns
        return max(heard_ns, since_ns) + self.good_for_ns


def awaited(
    holders: Iterable[Holder], *, store_epoch: int, version: int, since_ns: int, now_ns: int
) -> tuple[Holder, ...]:
    """Those who may still meet a command and would refuse what was written with `version`."""
    return tuple(
        holder
        for holder in holders
        if not holder.has(store_epoch=store_epoch, version=version)
        and holder.ends_ns(since_ns=since_ns, now_ns=now_ns) > now_ns
    )
