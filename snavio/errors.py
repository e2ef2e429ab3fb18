"""Every exception that Snavio raises on purpose.

    SnavioError
    ├── BadRequest            the caller's mistake; says which field and rule
    ├── Unauthenticated       no identity, or one that is not valid any more
    ├── NotAllowed            authenticated, but without the right
    ├── NotFound              names something that does not exist
    ├── Conflict              contradicts what is stored
    ├── Saturated             a bound is reached; retry after a while
    ├── Unavailable           something we depend on is away
    ├── IntegrityError        stored bytes are not what was written
    └── StateError            a state folder or store that this program cannot use

Expected outcomes of a command are values (`Verdict`), not exceptions.
"""


class SnavioError(Exception):
    """The root. `reason` is stable and short; the message is one sentence for people, without secrets."""

    reason = "internal"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class BadRequest(SnavioError):
    """The caller's mistake."""

    reason = "bad-request"


class Unauthenticated(SnavioError):
    """No identity, or one that is not valid any more."""

    reason = "unauthenticated"


class NotAllowed(SnavioError):
    """Authenticated, but without the right."""

    reason = "not-allowed"


class NotFound(SnavioError):
    """Names something that does not exist."""

    reason = "not-found"


class Conflict(SnavioError):
    """Contradicts what is stored."""

    reason = "conflict"


class Saturated(SnavioError):
    """A bound is reached."""

    reason = "saturated"

    def __init__(self, message: str, *, retry_after_ms: int, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.retry_after_ms = retry_after_ms


class Unavailable(SnavioError):
    """Something we depend on is away."""

    reason = "unavailable"


class IntegrityError(SnavioError):
    """Stored bytes are not what was written."""

    reason = "integrity"


class StateError(SnavioError):
    """A state folder or store that this program cannot use."""

    reason = "state"
