"""The gateway's operations as one table, and the OpenAPI document made from it.

Never describes an operation that is not served, nor serves one that is not described.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from snavio.domain.stream import FAMILIES, MAX_SEQ, TYPE_PREFIX
from snavio.http.problems import MEDIA_TYPE

PROBLEMS: Final = {
    "400": "A header or parameter cannot be read.",
    "401": "No client certificate, or one that has expired or was revoked.",
    "403": "The certificate, or the capability, does not reach so far.",
    "404": "There is no such tenant.",
    "429": "Too many streams, or too many in a minute; see Retry-After.",
    "503": "A service that is needed for the answer is away; see Retry-After.",
}


@dataclass(frozen=True, slots=True)
class HttpOperation:
    """One operation. Its name is its row in the authorisation table."""

    method: str
    path: str
    summary: str
    media_type: str
    answer: str
    parameters: tuple[Mapping[str, Any], ...] = ()
    problems: Mapping[str, str] = field(default_factory=lambda: dict(PROBLEMS))

    @property
    def name(self) -> str:
        """Such as `GET /v1/tenants/{tenant}/events`."""
        return f"{self.method} {self.path}"


_TENANT: Final = {
    "name": "tenant",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"},
}

OPERATIONS: Final = (
    HttpOperation(
        "GET",
        "/v1/tenants/{tenant}/events",
        "The tenant's signed events, as they come.",
        "text/event-stream",
        "A stream of envelopes: `id` is the number, `data` the signed envelope in canonical JSON.",
        (
            _TENANT,
            {
                "name": "Last-Event-ID",
                "in": "header",
                "description": f"Number of the last envelope that was handled, 0 to {MAX_SEQ}; without it, what comes "
                "from now on.",
                "schema": {"type": "string", "pattern": "^[0-9]{1,20}$"},
            },
            {
                "name": "source",
                "in": "query",
                "description": "Only envelopes of this source, `<tenant>/<service>`; may be repeated.",
                "schema": {"type": "array", "items": {"type": "string"}, "maxItems": 64},
            },
            {
                "name": "only",
                "in": "query",
                "description": "`failures`: only envelopes with a refused or failed command in them.",
                "schema": {"type": "string", "enum": ["failures"]},
            },
            {
                "name": "type",
                "in": "query",
                "description": "Only envelopes of this type; may be repeated.",
                "schema": {
                    "type": "array",
                    "items": {"type": "string", "enum": [TYPE_PREFIX + family for family in FAMILIES]},
                },
            },
            {
                "name": "Snavio-Capability",
                "in": "header",
                "description": "A capability for the stream, for callers other than the tenant's principals.",
                "schema": {"type": "string"},
            },
        ),
        {
            **PROBLEMS,
            "410": "Envelopes after that number are no longer kept; `position` is signed and says where to go on.",
        },
    ),
    HttpOperation(
        "GET",
        "/v1/tenants/{tenant}/state",
        "The tenant's signed state, to go on from when the stream could not be resumed.",
        "application/json",
        "A signed document with the position to go on from.",
        (_TENANT,),
    ),
    HttpOperation(
        "GET",
        "/v1/tenants/{tenant}/config",
        "Versions of the tenant's HMAC keys, without secrets: times, use, last poll.",
        "application/json",
        "Key sets by source.",
        (_TENANT,),
    ),
    HttpOperation(
        "GET",
        "/v1/tenants/{tenant}/alerts",
        "The tenant's alerts, newest first: what its dashboard shows.",
        "application/json",
        "Alerts with their channels; `more` if there are older ones.",
        (
            _TENANT,
            {
                "name": "open",
                "in": "query",
                "description": "`true`: only those that nobody acknowledged.",
                "schema": {"type": "boolean"},
            },
            {
                "name": "before",
                "in": "query",
                "description": "Only those older than this one.",
                "schema": {"type": "string", "maxLength": 64},
            },
        ),
    ),
)


def openapi() -> bytes:
    """The document, in one spelling."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        answers: dict[str, Any] = {
            "200": {
                "description": operation.answer,
                "content": {operation.media_type: {"schema": {"type": "string"}}},
            }
        }
        for status, about in operation.problems.items():
            answers[status] = {
                "description": about,
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }
        paths.setdefault(operation.path, {})[operation.method.lower()] = {
            "summary": operation.summary,
            "parameters": list(operation.parameters),
            "responses": answers,
        }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Snavio gateway", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {
                "Problem": {
                    "type": "object",
                    "required": ["title", "status", "code", "reason", "detail"],
                    "properties": {
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "code": {"type": "string"},
                        "reason": {"type": "string"},
                        "detail": {"type": "string"},
                        "position": {"type": "object"},
                    },
                }
            },
            "securitySchemes": {"certificate": {"type": "mutualTLS"}},
        },
        "security": [{"certificate": []}],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
