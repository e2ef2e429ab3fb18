"""The outcome of a sent command, as a value that its sender can keep.

Never claims that a command was not delivered when an earlier attempt may have been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from snavio.domain.verdict import Verdict
from snavio.errors import (
    BadRequest,
    Conflict,
    NotAllowed,
    NotFound,
    Saturated,
    SnavioError,
    Unauthenticated,
    Unavailable,
)


@dataclass(frozen=True, slots=True)
class FairnessShares:
    """Why a source was refused for fairness."""

    source_share: float
    """The source's share of the route's dispatches, 0 to 1."""
    competing_share: float
    """Share of others in everything that was offered, 0 to 1; of another whole than `source_share`."""
    dispatch_volume: int
    """Dispatches that were counted."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The mesh's answer to one command."""

    verdict: Verdict
    command_id: str
    attempts: int = 1
    """Number of attempts, the first included."""
    retry_after_ms: int = 0
    """The least time to wait before trying again; 0 says nothing."""
    throttle_until_unix_ns: int = 0
    """Time from which it will likely be accepted again, nanoseconds since the epoch; 0 if unknown."""
    detail: str = ""
    """One sentence or value for people."""
    shares: FairnessShares | None = None
    """With a `fairness-violation`: what it was decided by."""

    @property
    def delivered(self) -> bool:
        """The command is durable in its target queue."""
        return 0 < self.verdict < Verdict.MALFORMED

    @property
    def reason(self) -> str:
        """The verdict's stable name, such as `acl-deny`."""
        return self.verdict.reason

    def raise_for_refusal(self) -> None:
        """Return when delivered; otherwise raise the SnavioError that fits, with the verdict's reason."""
        if self.delivered:
            return
        message = f"Command {self.command_id}: {self.reason}"
        message += f" ({self.detail})." if self.detail else "."
        verdict = self.verdict
        if verdict in _SATURATED:
            raise Saturated(message, retry_after_ms=self.retry_after_ms, reason=self.reason)
        raise _ERRORS.get(verdict, BadRequest)(message, reason=self.reason)


_SATURATED = frozenset({Verdict.SATURATED, Verdict.RATE_LIMIT_EXCEEDED, Verdict.FAIRNESS_VIOLATION})

# Verdicts that are not listed are commands that Shield found ill-formed or untimely: the caller's mistake.
_ERRORS: dict[Verdict, type[SnavioError]] = {
    Verdict.UNDECIDED: Unavailable,
    Verdict.SUSPENDED: NotAllowed,
    Verdict.ACL_DENY: NotAllowed,
    Verdict.FROZEN: NotAllowed,
    Verdict.ROUTE_MISSING: NotFound,
    Verdict.CONFLICT: Conflict,
    Verdict.DELIVERY_FAILURE: Unavailable,
    Verdict.OUTCOME_UNKNOWN: Unavailable,
    Verdict.UNKNOWN_KEY_VERSION: Unauthenticated,
    Verdict.KEY_EXPIRED: Unauthenticated,
    Verdict.KEY_REVOKED: Unauthenticated,
    Verdict.WRONG_AUDIENCE: Unauthenticated,
    Verdict.HMAC_MISMATCH: Unauthenticated,
    Verdict.REPLAYED: Unauthenticated,
    Verdict.CERTIFICATE_EXPIRED: Unauthenticated,
    Verdict.CERTIFICATE_REVOKED: Unauthenticated,
}

ID_CHARACTERS = 36


class Outcomes(Sequence[Outcome]):
    """The outcomes of a batch, in its order. Kept as bytes; an Outcome is made when one is looked at."""

    __slots__ = ("_codes", "_different", "_ids")

    def __init__(self, ids: bytes, codes: bytes, different: Mapping[int, Outcome] | None = None) -> None:
        self._ids = ids
        self._codes = codes
        self._different = different or {}

    @property
    def delivered(self) -> int:
        """Number of commands that are durable in their target queues."""
        return sum(self._codes.count(code) for code in _GOOD)

    @property
    def refused(self) -> list[Outcome]:
        """Those that are not."""
        return [outcome for outcome in self if not outcome.delivered] if self.delivered < len(self) else []

    def command_id(self, place: int) -> str:
        """The id of one command."""
        return self._ids[place * ID_CHARACTERS : (place + 1) * ID_CHARACTERS].decode()

    def amended(self, different: Mapping[int, Outcome]) -> Outcomes:
        """The same, but for some that further attempts have decided."""
        codes = bytearray(self._codes)
        for place, outcome in different.items():
            codes[place] = outcome.verdict
        return Outcomes(self._ids, bytes(codes), different)

    def __len__(self) -> int:
        return len(self._codes)

    @overload
    def __getitem__(self, place: int) -> Outcome: ...
    @overload
    def __getitem__(self, place: slice) -> list[Outcome]: ...
    def __getitem__(self, place: int | slice) -> Outcome | list[Outcome]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if place < 0:
            place += len(self)
        if not 0 <= place < len(self):
            raise IndexError(f"There are {len(self)} outcomes.")
        return self._different.get(place) or Outcome(Verdict(self._codes[place]), self.command_id(place))

    def __repr__(self) -> str:
        return f"Outcomes({self.delivered} of {len(self)} delivered)"


_GOOD = (Verdict.DELIVERED, Verdict.DUPLICATE)
