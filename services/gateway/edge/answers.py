"""The answer to one request at the edge, and the way to it.

Never a 429 or 503 without a time to come back, and never a byte of the request in an answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import orjson

JSON_TYPE: Final = (b"content-type", b"application/json")
QUEUED: Final = "queued"
DUPLICATE: Final = "duplicate"
DEFAULT_RETRY_MS: Final = 1000


@dataclass(slots=True)
class EdgeAnswer:
    """Status, a stable reason, and a sentence for the sender."""

    status: int
    reason: str
    sentence: str = ""
    event_ids: tuple[str, ...] = ()
    retry_after_ms: int = 0
    headers: tuple[tuple[bytes, bytes], ...] = ()
    close: bool = False
    """End the connection: the rest of the request is not read."""

    @property
    def accepted(self) -> bool:
        """The sender need not send it again."""
        return self.status == 202

    def body(self) -> bytes:
        """JSON."""
        if self.accepted:
            document = {"status": self.reason}
            if self.event_ids:
                document["id"] = self.event_ids[0]
            return orjson.dumps(document)
        return orjson.dumps({"code": self.reason, "detail": self.sentence})

    def wire_headers(self, body: bytes, request_id: str) -> list[tuple[bytes, bytes]]:
        """All of its headers."""
        found = [
            JSON_TYPE,
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id.encode("ascii")),
        ]
        if self.status in (429, 503):
            seconds = max(1, math.ceil((self.retry_after_ms or DEFAULT_RETRY_MS) / 1000))
            found.append((b"retry-after", b"%d" % seconds))
        if self.close:
            found.append((b"connection", b"close"))
        found += self.headers
        return found


@dataclass(slots=True)
class RequestNotes:
    """The record of a request: one line of the access log, and the steps that `explain` shows."""

    request_id: str
    listener: str
    received_unix_ns: int
    method: str = ""
    path: str = ""
    remote: str = ""
    route: str = ""
    caller: str = ""
    bytes_in: int = 0
    steps: list[tuple[str, str, str]] = field(default_factory=list)
    """Name, `passed` or `refused`, and a sentence."""

    def passed(self, step: str, detail: str = "") -> None:
        """A step that did not speak against the request."""
        self.steps.append((step, "passed", detail))

    def refused(self, step: str, detail: str) -> None:
        """The step that decided."""
        self.steps.append((step, "refused", detail))
