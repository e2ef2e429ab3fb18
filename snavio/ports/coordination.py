"""State that all instances of Slow share: usage of each limit, claims of strict ids, and counts of bans per source.

Time is the store's, never a caller's, so that instances with different clocks count the same intervals. Every call
carries a batch; each entry of it is atomic on its own and entries are decided in order, the batch as a whole is not
atomic. Unavailable when the store cannot be reached or does not answer in time: the outcome is then unknown, and each
method says what may have been lost. Nothing here retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from snavio.domain.claim import Claimed
from snavio.domain.quota import LimitRule, Permits

MAX_BATCH = 1000


@dataclass(frozen=True, slots=True)
class PermitAsk:
    """A request for permits. `key` is (target, name), or (source, target, name) for a source's own quota."""

    key: tuple[str, ...]
    rule: LimitRule
    want: int


@dataclass(frozen=True, slots=True)
class PermitReturn:
    """Unused permits to return."""

    key: tuple[str, ...]
    interval_ms: int
    interval: int
    count: int
    granted: bool = False
    """They came from `grant`; otherwise from `take`."""


@dataclass(frozen=True, slots=True)
class ClaimAsk:
    """A request to claim a strict command before its dispatch."""

    source: str
    command_id: bytes
    contents: bytes
    """BLAKE3 of target, name and payload: another command under the same id is a conflict."""


@dataclass(frozen=True, slots=True)
class BanSeen:
    """A ban that one instance of Fast imposed. `key` is (source, target, name)."""

    key: tuple[str, str, str]
    window_ms: int
    """Bans of one key that are no further apart are one offence."""


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """The answer to a claim."""

    claimed: Claimed
    retry_after_ms: int = 0
    delivered_unix_ms: int = 0
    """Of a DUPLICATE: when the first one was delivered, by the store's clock."""


class Coordination(Protocol):
    """See the module."""

    async def take(self, asks: Sequence[PermitAsk]) -> list[Permits]:
        """Debit available permits for use at once. Not idempotent: permits of a call whose answer was lost are gone,
        and never used twice.
        """
        ...

    async def grant(self, wishes: Sequence[PermitAsk], *, instance: str, leases: int) -> list[Permits]:
        """Debit permits for later in the running interval; at most `leases` instances per key and second. Not
        idempotent, as `take`.
        """
        ...

    async def give_back(self, returns: Sequence[PermitReturn]) -> None:
        """Return permits if their interval still runs; otherwise nothing. Not idempotent: after an unknown outcome it
        must not be repeated.
        """
        ...

    async def claim(self, asks: Sequence[ClaimAsk], *, owner: str) -> list[ClaimAnswer]:
        """Claim ids for `owner`, which must be unique to the attempt. Saturated, with nothing claimed, when the
        table or a source's share of it is full of living claims. A claim whose answer was lost is taken over after
        its lease."""
        ...

    async def look_up(self, source: str, command_id: bytes) -> ClaimAnswer:
        """The answer that `claim` would give to the same command, without claiming anything."""
        ...

    async def commit(self, asks: Sequence[ClaimAsk], *, owner: str) -> None:
        """Mark as delivered. Idempotent."""
        ...

    async def release(self, asks: Sequence[ClaimAsk], *, owner: str) -> None:
        """Free ids that were definitely not delivered. Idempotent."""
        ...

    async def count_bans(self, bans: Sequence[BanSeen], *, within_ms: int) -> list[int]:
        """Record each ban; the number of offences of its key in the last `within_ms`. Idempotent within a ban's window:
        one offence counts once, however many instances report it.
        """
        ...

    async def forget_bans(self, keys: Sequence[tuple[str, str, str]]) -> None:
        """Reset the counts of bans that are in the directory now. Idempotent."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
