"""Asks another service whether a request may come in.

Never lets a request in because nobody answered, never shows the other service more of the body than it may see, and
never follows where it redirects to.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

from services.gateway.edge.answers import EdgeAnswer, RequestNotes
from snavio.edge.kinds import SECOND_NS
from snavio.edge.plan import EgressRules, ForwardAuth
from snavio.edge.requests import EdgeRequest
from snavio.egress.policy import EgressPolicy
from snavio.egress.requests import Egress, EgressLimits
from snavio.errors import SnavioError

MOST_ANSWER: Final = 4096
MOST_AT_ONCE: Final = 256
RETRY_MS: Final = 2000
# Of the connection, and of a body that is cut.
_NOT_SENT: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "accept-encoding",
    }
)


class Forwarding:
    """Lives on one event loop. One client per service that is asked: its address opens no other."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, tuple[str, ...]], Egress] = {}
        self._deny: tuple[str, ...] = ()
        self._asked = 0

    def use(self, rules: EgressRules, wanted: list[ForwardAuth]) -> None:
        """Take over the rules of a plan; clients that it does not need are let go of at the end."""
        self._deny = rules.deny
        for auth in wanted:
            self._client(auth)

    async def ask(
        self, auth: ForwardAuth, request: EdgeRequest, body: bytes, notes: RequestNotes
    ) -> tuple[tuple[bytes, bytes], ...] | EdgeAnswer:
        """The headers of its answer that are kept; an answer when the request may not come in."""
        if self._asked >= MOST_AT_ONCE:
            notes.refused("auth", f"forward: {MOST_AT_ONCE} requests are being asked about already")
            return _away("saturated")
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.headers
            if name.decode("latin-1") not in _NOT_SENT
        }
        whole = f"{request.path}?{request.query}" if request.query else request.path
        headers |= {
            "x-forwarded-method": request.method,
            "x-forwarded-uri": whole,
            "x-forwarded-host": request.host,
            "x-forwarded-for": notes.remote,
            "x-request-id": notes.request_id,
        }
        timeout_s = auth.timeout_ns / SECOND_NS
        limits = EgressLimits(
            connect_s=timeout_s, first_byte_s=timeout_s, total_s=timeout_s, max_body=MOST_ANSWER
        )
        self._asked += 1
        try:
            answer = await self._client(auth).request(
                "POST", auth.url, headers=headers, body=body[: auth.body_limit], limits=limits
            )
        except SnavioError as error:
            notes.refused("auth", f"forward: {error.reason}: {error}")
            return _away("auth-unavailable")
        finally:
            self._asked -= 1
        if 200 <= answer.status < 300:
            notes.passed("auth", f"forward: {answer.status}")
            return tuple(
                (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
                for name in auth.copy_headers
                if (value := answer.headers.get(name)) is not None
            )
        if answer.status in (401, 403):
            notes.refused("auth", f"forward: {answer.status}")
            reason = "unauthorized" if answer.status == 401 else "forbidden"
            return EdgeAnswer(answer.status, reason, "The request was not let in.")
        notes.refused("auth", f"forward: it answered {answer.status}, which lets nobody in")
        return _away("auth-unavailable")

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(each.close() for each in self._clients.values()), return_exceptions=True)

    def _client(self, auth: ForwardAuth) -> Egress:
        host = urlsplit(auth.url).hostname or ""
        key = (host, self._deny)
        if key not in self._clients:
            # The operator's file names this host; `deny` still counts, and a name cannot open this machine.
            self._clients[key] = Egress(EgressPolicy(allow=(host,), deny=self._deny, https_only=False))
        return self._clients[key]


def _away(reason: str) -> EdgeAnswer:
    return EdgeAnswer(
        503, reason, "Nobody could say whether this request may come in.", retry_after_ms=RETRY_MS
    )
