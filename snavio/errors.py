"""Every exception that Snavio raises on purpose.

    SnavioError
    ├── BadRequest            the caller's mistake; says which field and rule
    │   └── FrameTooLarge     larger than both ends agreed on
    ├── Unauthenticated       no identity, or one that is not valid any more
    ├── NotAllowed            authenticated, but without the right
    ├── NotFound              names something that does not exist
    ├── Conflict              contradicts what is stored
    ├── Saturated             a bound is reached; retry after a while
    ├── Unavailable           something we depend on is away; retry after a while
    │   └── Unreadable        the disk is there, and does not give what was written to it
    ├── IntegrityError        stored bytes are not what was written
    └── StateError            a state folder or store that this program cannot use

    NativeFault               a panic of the native library: raised by nobody on purpose, so no SnavioError

Expected outcomes of a command are values (`Verdict`), not exceptions. Each error has a `code` of one taxonomy,
which never changes and travels with the error.
"""

from enum import Enum
from typing import Final

AWAY_RETRY_MS: Final = 1000
"""The default pause before a retry of something that is away."""


class Code(Enum):
    """The error taxonomy: a stable code, and its HTTP status at the edge."""

    E_SCHEMA = 400
    E_CAP_AUTH = 401
    E_CAP_SCOPE = 403
    E_NOT_FOUND = 404
    E_DUPLICATE = 409
    E_FRAME_TOO_LARGE = 413
    E_INTEGRITY = 422
    E_SATURATED = 429
    E_INTERNAL = 500
    E_UNAVAILABLE = 503

    @property
    def http_status(self) -> int:
        """Such as 429."""
        return self.value


class SnavioError(Exception):
    """The root. `reason` is stable and short; the message is one sentence for people, without secrets."""

    reason = "internal"
    code = Code.E_INTERNAL

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class BadRequest(SnavioError):
    """The caller's mistake."""

    reason = "bad-request"
    code = Code.E_SCHEMA


class FrameTooLarge(BadRequest):
    """A message, or a batch of them, larger than both ends agreed on."""

    reason = "oversized"
    code = Code.E_FRAME_TOO_LARGE


class Unauthenticated(SnavioError):
    """No identity, or one that is not valid any more."""

    reason = "unauthenticated"
    code = Code.E_CAP_AUTH

    def __init__(self, message: str, *, reason: str | None = None, signer: str = "") -> None:
        super().__init__(message, reason=reason)
        self.signer = signer
        """Address of the Signer that can issue the missing capability; empty if unknown."""


class NotAllowed(SnavioError):
    """Authenticated, but without the right."""

    reason = "not-allowed"
    code = Code.E_CAP_SCOPE


class NotFound(SnavioError):
    """Names something that does not exist."""

    reason = "not-found"
    code = Code.E_NOT_FOUND


class Conflict(SnavioError):
    """Contradicts what is stored."""

    reason = "conflict"
    code = Code.E_DUPLICATE


class Saturated(SnavioError):
    """A bound is reached."""

    reason = "saturated"
    code = Code.E_SATURATED

    def __init__(self, message: str, *, retry_after_ms: int, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.retry_after_ms = retry_after_ms


class Unavailable(SnavioError):
    """A dependency is away. `retry_after_ms` defaults to one second."""

    reason = "unavailable"
    code = Code.E_UNAVAILABLE

    def __init__(
        self, message: str, *, reason: str | None = None, retry_after_ms: int = AWAY_RETRY_MS
    ) -> None:
        super().__init__(message, reason=reason)
        self.retry_after_ms = retry_after_ms


class Unreadable(Unavailable):
    """The disk is there, and does not return the bytes that were written to it."""


class IntegrityError(SnavioError):
    """Stored bytes are not what was written."""

    reason = "integrity"
    code = Code.E_INTEGRITY


class StateError(SnavioError):
    """A state folder or store that this program cannot use."""

    reason = "state"


class NativeFault(Exception):
    """A panic of the native library: a bug, as any other unforeseen exception.

    Without slots: the library makes it the base of the class that carries a panic across the seam, which has none.
    """

    __slots__ = ()
