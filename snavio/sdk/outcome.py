"""What became of a sent command, as a value that its sender can keep.

Never claims that a command was not delivered when an earlier attempt may have been.
"""

from __future__ import annotations

from dataclasses import dataclass

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
class Outcome:
    """The mesh's answer to one command."""

    verdict: Verdict
    command_id: str
    attempts: int = 1
    """How often it was sent, the first time included."""
    retry_after_ms: int = 0
    """The least time to wait before trying again; 0 says nothing."""
    throttle_until_unix_ns: int = 0
    """When it will likely be accepted again, nanoseconds since the epoch; 0 says nothing."""
    detail: str = ""
    """One sentence or value for people."""

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

# What is not named here is a command that Shield found ill-formed or untimely: the caller's mistake.
_ERRORS: dict[Verdict, type[SnavioError]] = {
    Verdict.UNDECIDED: Unavailable,
    Verdict.SUSPENDED: NotAllowed,
    Verdict.ACL_DENY: NotAllowed,
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
