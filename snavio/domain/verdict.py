"""Verdicts of commands: the wire's one-byte codes with their stable reason names.

Never renumber and never rename: producers and archives keep both.
"""

from __future__ import annotations

from enum import IntEnum


class Verdict(IntEnum):
    """Same numbers as `snavio.v1.Verdict`; a test compares the two."""

    UNDECIDED = 0
    DELIVERED = 1
    DUPLICATE = 2
    MALFORMED = 16
    OVERSIZED = 17
    SOURCE_PRESENT = 18
    INVALID_ID = 19
    INVALID_TIMESTAMP = 20
    INVALID_TYPE = 21
    INVALID_KEY_VERSION = 22
    INVALID_AUDIENCE = 23
    INVALID_HMAC = 24
    INVALID_TARGET = 25
    INVALID_NAME = 26
    INVALID_CONTENT_TYPE = 27
    INVALID_TRACEPARENT = 28
    SUSPENDED = 32
    UNKNOWN_KEY_VERSION = 33
    KEY_EXPIRED = 34
    KEY_REVOKED = 35
    WRONG_AUDIENCE = 36
    TIMESTAMP_OUTSIDE_WINDOW = 37
    HMAC_MISMATCH = 38
    REPLAYED = 39
    CERTIFICATE_EXPIRED = 40
    CERTIFICATE_REVOKED = 41
    RATE_LIMIT_EXCEEDED = 64
    ACL_DENY = 65
    ROUTE_MISSING = 66
    DELIVERY_FAILURE = 67
    FAIRNESS_VIOLATION = 68
    OUTCOME_UNKNOWN = 69
    SATURATED = 70
    CONFLICT = 71
    FROZEN = 72

    @property
    def reason(self) -> str:
        """The stable name in telemetry and messages, such as `acl-deny`."""
        return self.name.lower().replace("_", "-")

    @property
    def delivered(self) -> bool:
        """The command is durable in its target queue."""
        return self in (Verdict.DELIVERED, Verdict.DUPLICATE)

    @property
    def invalid(self) -> bool:
        """Shield refused it: `snavio.command.invalid`."""
        return 16 <= self < 64

    @property
    def failed(self) -> bool:
        """It was valid and failed: `snavio.command.failed`."""
        return self >= 64

    @property
    def retryable(self) -> bool:
        """The same command, signed again, may be accepted without a change of rules."""
        return self in _RETRYABLE


_RETRYABLE = frozenset(
    {
        Verdict.UNKNOWN_KEY_VERSION,
        Verdict.KEY_EXPIRED,
        Verdict.WRONG_AUDIENCE,
        Verdict.RATE_LIMIT_EXCEEDED,
        Verdict.DELIVERY_FAILURE,
        Verdict.FAIRNESS_VIOLATION,
        Verdict.OUTCOME_UNKNOWN,
        Verdict.SATURATED,
    }
)
