"""Errors on the wire: the one place where a SnavioError becomes a gRPC status, and where one is read back.

Never shows a caller the text of an error that was not written for callers.
"""

from __future__ import annotations

import re
from typing import Any, Final

import grpc

from snavio.domain.stream import OutsideReplayWindow
from snavio.errors import (
    AWAY_RETRY_MS,
    BadRequest,
    Code,
    Conflict,
    FrameTooLarge,
    IntegrityError,
    NotAllowed,
    NotFound,
    Saturated,
    SnavioError,
    Unauthenticated,
    Unavailable,
)

REASON_KEY: Final = "snavio-reason"
CODE_KEY: Final = "snavio-code"
DETAILS_KEY: Final = "grpc-status-details-bin"
RETRY_AFTER_KEY: Final = "snavio-retry-after-ms"
SIGNER_KEY: Final = "snavio-signer"

DEADLINE_EXCEEDED: Final = "deadline-exceeded"
OVERSIZED: Final = "oversized"
DRAINING: Final = "draining"

# gRPC's own refusals for load carry no hint.
_DEFAULT_RETRY_AFTER_MS: Final = AWAY_RETRY_MS
_MAX_RETRY_AFTER_MS: Final = 86_400_000
_REASON: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MAX_DETAIL_CHARACTERS: Final = 512
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.:\[\]-]{1,300}:[0-9]{1,5}")

# Reasons that have a status of their own, whatever the class of the error.
_CODE_BY_REASON: Final = {
    DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    OutsideReplayWindow.reason: grpc.StatusCode.FAILED_PRECONDITION,
}
_CODE_BY_CLASS: Final = (
    (BadRequest, grpc.StatusCode.INVALID_ARGUMENT),
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (NotAllowed, grpc.StatusCode.PERMISSION_DENIED),
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (Conflict, grpc.StatusCode.ALREADY_EXISTS),
    (Saturated, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (IntegrityError, grpc.StatusCode.DATA_LOSS),
)
# Errors with these statuses may be retried, and carry a hint.
_RETRIED: Final = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE})
_CLASS_BY_CODE: Final[dict[Any, type[SnavioError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: BadRequest,
    grpc.StatusCode.OUT_OF_RANGE: BadRequest,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowed,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.UNIMPLEMENTED: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Unavailable,
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.DATA_LOSS: IntegrityError,
}
# Reasons for statuses that gRPC made, which carry no reason of ours.
_REASON_BY_CODE: Final = {
    grpc.StatusCode.UNIMPLEMENTED: "unknown-method",
    grpc.StatusCode.DEADLINE_EXCEEDED: DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED: "cancelled",
}
# Plain sentences: a reader need not know gRPC to see that a service is away.
_SENTENCES: Final[dict[Any, str]] = {
    grpc.StatusCode.UNAVAILABLE: "{peer} does not answer at {address}.",
    grpc.StatusCode.DEADLINE_EXCEEDED: "{peer} does not answer in time at {address}.",
}
_STRANGER: Final = "Whoever answers at {address} is not the {peer} of this installation, or does not know us."


async def abort(context: Any, error: SnavioError) -> None:
    """End a call with the status of `error`; always raises gRPC's AbortError."""
    code = code_of(error)
    if code is grpc.StatusCode.INTERNAL:
        await abort_internal(context)
    reason = error.reason if _REASON.fullmatch(error.reason) else type(error).reason
    metadata: tuple[tuple[str, str | bytes], ...] = (
        (REASON_KEY, reason),
        (CODE_KEY, taxonomy_of(error).name),
    )
    if isinstance(error, Saturated | Unavailable) and code in _RETRIED:
        # Never 0: all callers that were refused together would return together, at once.
        retry_after_ms = max(1, min(error.retry_after_ms, _MAX_RETRY_AFTER_MS))
        metadata += (
            (RETRY_AFTER_KEY, str(retry_after_ms)),
            (DETAILS_KEY, _retry_info(code, str(error), retry_after_ms)),
        )
    if isinstance(error, Unauthenticated) and error.signer:
        metadata += ((SIGNER_KEY, error.signer),)
    await context.abort(code, str(error)[:_MAX_DETAIL_CHARACTERS], metadata)


async def abort_internal(context: Any) -> None:
    """End a call with INTERNAL and no text; always raises gRPC's AbortError."""
    await context.abort(grpc.StatusCode.INTERNAL, "internal error", ((REASON_KEY, "internal"),))


def code_of(error: SnavioError) -> Any:
    """The gRPC status code of `error`; INTERNAL where its text is not for callers.

    State errors name paths, and a bare SnavioError says what only we should know.
    """
    by_reason = _CODE_BY_REASON.get(error.reason)
    if by_reason is not None:
        return by_reason
    for kind, code in _CODE_BY_CLASS:
        if isinstance(error, kind):
            return code
    return grpc.StatusCode.INTERNAL


def taxonomy_of(error: SnavioError) -> Code:
    """The error's code in the taxonomy, such as `E_INTEGRITY`."""
    # By its reason where the error was not raised as a FrameTooLarge.
    return Code.E_FRAME_TOO_LARGE if error.reason == OVERSIZED else error.code


def _retry_info(code: Any, message: str, retry_after_ms: int) -> bytes:
    """The retry hint where clients of any language look for it: google.rpc.RetryInfo in the error details."""
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    hint = RetryInfo()
    hint.retry_delay.FromMilliseconds(retry_after_ms)
    status = Status(code=code.value[0], message=message[:_MAX_DETAIL_CHARACTERS])
    status.details.add().Pack(hint)
    serialised: bytes = status.SerializeToString()
    return serialised


def error_of(rpc_error: Any, *, peer: str = "", address: str = "") -> SnavioError:
    """The SnavioError that the other end raised, or the equivalent of gRPC's own failure. With `peer`, such as
    "Registry", gRPC's failure gets a plain sentence; gRPC's own text is a note of the error, for debugging.
    """
    code = rpc_error.code()
    message = rpc_error.details() or code.name.lower()
    metadata = {str(key): value for key, value in rpc_error.trailing_metadata() or ()}
    reason = _text(metadata.get(REASON_KEY))
    if reason is not None and not _REASON.fullmatch(reason):
        reason = None
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # gRPC has one status for a message over the limit and for too many calls. Only the second may be
        # tried again, and only the words tell them apart; a test holds them.
        if reason is None and "larger than max" in message:
            return FrameTooLarge("The message is larger than the mesh allows.")
        return Saturated(message, retry_after_ms=_retry_after_ms(metadata), reason=reason)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        signer = _text(metadata.get(SIGNER_KEY)) or ""
        return Unauthenticated(message, reason=reason, signer=signer if _ADDRESS.fullmatch(signer) else "")
    if peer and reason is None and code in _SENTENCES:
        # TLS has no status of its own.
        stranger = "handshake" in message.lower() or "CERTIFICATE" in message
        sentence = _STRANGER if stranger else _SENTENCES[code]
        silent = Unavailable(sentence.format(peer=peer, address=address), reason=_REASON_BY_CODE.get(code))
        silent.add_note(f"gRPC: {message}")
        return silent
    if code is grpc.StatusCode.UNAVAILABLE:
        return Unavailable(message, reason=reason, retry_after_ms=_retry_after_ms(metadata))
    kind = _CLASS_BY_CODE.get(code, SnavioError)
    if reason == OVERSIZED and kind is BadRequest:
        kind = FrameTooLarge
    return kind(message, reason=reason or _REASON_BY_CODE.get(code))


def _retry_after_ms(metadata: dict[str, Any]) -> int:
    text = _text(metadata.get(RETRY_AFTER_KEY))
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 9:
        return _DEFAULT_RETRY_AFTER_MS
    return min(int(text), _MAX_RETRY_AFTER_MS)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
