"""Asks another service whether a request may come in.

Never lets a request in because nobody answered.
"""

from __future__ import annotations

from services.gateway.edge.answers import EdgeAnswer, RequestNotes
from snavio.edge.plan import ForwardAuth
from snavio.edge.requests import EdgeRequest


class Forwarding:
    """Placeholder until egress lands."""

    async def ask(
        self, auth: ForwardAuth, request: EdgeRequest, body: bytes, notes: RequestNotes
    ) -> tuple[tuple[bytes, bytes], ...] | EdgeAnswer:
        """The headers to keep; an answer when the request may not come in."""
        raise NotImplementedError
