"""Errors over HTTP: problem details (RFC 9457) with the codes and reasons of the mesh.

Never shows the text of an unexpected error; it goes to the log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson
from starlette.responses import Response

from snavio.errors import Code, SnavioError

MEDIA_TYPE: Final = "application/problem+json"


def problem_of(error: SnavioError, *, headers: Mapping[str, str] | None = None) -> Response:
    """The response for an error of the mesh."""
    if error.code is Code.E_INTERNAL:
        error = SnavioError("The request could not be answered.")
    return with_status(error.code.http_status, error, headers=headers)


def with_status(
    status: int, error: SnavioError, *, headers: Mapping[str, str] | None = None, position: bytes = b""
) -> Response:
    """The same under a status of its own; `position` is a signed document in JSON."""
    document: dict[str, Any] = {
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": error.code.name,
        "reason": error.reason,
        "detail": str(error),
    }
    if position:
        document["position"] = orjson.Fragment(position)
    told = {"cache-control": "no-store", **(headers or {})}
    if (retry_after_ms := getattr(error, "retry_after_ms", 0)) > 0:
        told["retry-after"] = str(math.ceil(retry_after_ms / 1000))
    return Response(orjson.dumps(document), status, told, media_type=MEDIA_TYPE)


def raw_problem(status: HTTPStatus, reason: str, detail: str) -> bytes:
    """A whole response that also ends the connection, for a request that never reaches an application."""
    body = orjson.dumps({"title": status.phrase, "status": int(status), "reason": reason, "detail": detail})
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
