"""The newest requests with every step of their judgement, refused ones too, for "why does the sender see 401".

Never a header, a body or a secret among the steps, and never more requests than the bound: the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from services.gateway.edge.answers import EdgeAnswer, RequestNotes

MOST_REQUESTS: Final = 4096


class RecentRequests:
    """Refused and accepted ones are kept apart, so that a flood of one kind does not drive out the other."""

    def __init__(self, most: int = MOST_REQUESTS) -> None:
        self._most = most
        self._accepted: OrderedDict[str, tuple[RequestNotes, EdgeAnswer, int]] = OrderedDict()
        self._refused: OrderedDict[str, tuple[RequestNotes, EdgeAnswer, int]] = OrderedDict()
        self._by_event: dict[str, str] = {}

    def keep(self, notes: RequestNotes, answer: EdgeAnswer, duration_ns: int) -> None:
        """Remember one request."""
        kept = self._accepted if answer.accepted else self._refused
        kept[notes.request_id] = (notes, answer, duration_ns)
        for event in answer.event_ids:
            self._by_event[event] = notes.request_id
        if len(kept) > self._most:
            _, (_, gone, _) = kept.popitem(last=False)
            for event in gone.event_ids:
                self._by_event.pop(event, None)

    def find(self, name: str) -> dict[str, Any] | None:
        """A request by its own id, or by that of an event or command that it became."""
        key = self._by_event.get(name, name)
        found = self._accepted.get(key) or self._refused.get(key)
        return None if found is None else document(*found)

    def newest(self, *, most: int, refused_only: bool = False, route: str = "") -> list[dict[str, Any]]:
        """The newest ones first."""
        every = list(self._refused.values()) + ([] if refused_only else list(self._accepted.values()))
        every.sort(key=lambda each: -each[0].received_unix_ns)
        return [document(*each) for each in every if not route or each[0].route == route][:most]


def document(notes: RequestNotes, answer: EdgeAnswer, duration_ns: int) -> dict[str, Any]:
    """A request as `explain` shows it."""
    return {
        "request_id": notes.request_id,
        "listener": notes.listener,
        "received_unix_ns": notes.received_unix_ns,
        "method": notes.method,
        "path": notes.path,
        "route": notes.route,
        "remote": notes.remote,
        "caller": notes.caller,
        "status": answer.status,
        "reason": answer.reason,
        "event_ids": list(answer.event_ids),
        "duration_ms": round(duration_ns / 1e6, 2),
        "steps": [{"step": step, "state": state, "detail": detail} for step, state, detail in notes.steps],
    }
