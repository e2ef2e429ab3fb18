"""Numbers of the verdicts that the transforms speak of, by what they mean for fairness and abuse.

The mesh's own list is the authority; a test holds the two together.
"""

from __future__ import annotations

from typing import Final

DELIVERED: Final = 1
DUPLICATE: Final = 2
SUSPENDED: Final = 32
WRONG_AUDIENCE: Final = 36
TIMESTAMP_OUTSIDE_WINDOW: Final = 37
HMAC_MISMATCH: Final = 38
REPLAYED: Final = 39
RATE_LIMIT_EXCEEDED: Final = 64
ACL_DENY: Final = 65
ROUTE_MISSING: Final = 66
DELIVERY_FAILURE: Final = 67
FAIRNESS_VIOLATION: Final = 68
OUTCOME_UNKNOWN: Final = 69
SATURATED: Final = 70
CONFLICT: Final = 71
FROZEN: Final = 72

SCHEMA_FIRST, SCHEMA_LAST = 16, 28
"""Malformed, over-long, or with a field outside its form."""
KEYS: Final = (33, 34, 35)
"""Key version unknown, ended or revoked."""
CERTIFICATES: Final = (40, 41)
"""The sender's certificate has expired or was revoked."""
VALID_FROM: Final = 64
"""From here on the command was valid."""
