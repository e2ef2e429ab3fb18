"""Decides if a new HMAC key version has reached every Shield that could receive a command signed with it.

Pure. Never counts a Shield as gone that may still admit commands with the keys that it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """A Shield, and the version of the key store that it has loaded."""

    name: str
    """Identifies one life of the process: after a restart it may begin with older keys."""
    store_epoch: int
    version: int
    heard_ns: int
    good_for_ns: int
    """Time for which it continues with its keys without an answer from Signer; after that it refuses every command."""

    def has(self, *, store_epoch: int, version: int) -> bool:
        """True if it has loaded that version of the store, or a later one."""
        return self.store_epoch == store_epoch and self.version >= version

    def ends_ns(self, *, since_ns: int, now_ns: int) -> int:
        """The time from which it refuses every command, unless it reports again.

        Its silence counts from `since_ns` at the earliest: a Signer that started then, or did not store earlier
        reports, cannot know of earlier silence. A report from the future was made before the clock was set back.
        """
        heard_ns = self.heard_ns if self.heard_ns <= now_ns else since_ns
        return max(heard_ns, since_ns) + self.good_for_ns


def awaited(
    holders: Iterable[Holder], *, store_epoch: int, version: int, since_ns: int, now_ns: int
) -> tuple[Holder, ...]:
    """The Shields that may still admit commands and have not loaded `version`."""
    return tuple(
        holder
        for holder in holders
        if not holder.has(store_epoch=store_epoch, version=version)
        and holder.ends_ns(since_ns=since_ns, now_ns=now_ns) > now_ns
    )
