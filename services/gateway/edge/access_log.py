"""One line per answered request, written by a thread of its own.

Never a query, a header or a body in a line, and never a request that waits for a slow disk: lines that cannot be
written in time are dropped, and counted.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

import orjson

from services.gateway.edge.answers import EdgeAnswer, RequestNotes
from snavio.edge.plan import LogSink
from snavio.errors import StateError
from snavio.host.periodic import Periodic
from snavio.telemetry.logs import LossyFile

MOST_LINES: Final = 50_000
FLUSH_SECONDS: Final = 0.2


class AccessLog:
    """Writes lines of all listeners; None for a log that is off."""

    def __init__(self, sink: LogSink | None) -> None:
        self._text = sink is not None and sink.format == "text"
        self._file = LossyFile(_opened(sink)) if sink is not None else None
        self._lines: deque[tuple[object, ...]] = deque()
        self.dropped = 0
        self._flushing = Periodic("access log", self.flush, every_s=FLUSH_SECONDS)

    def start(self) -> None:
        """Write in the background."""
        if self._file is not None:
            self._flushing.start()

    async def stop(self) -> None:
        """Write what is left."""
        await self._flushing.stop()
        await self.flush()

    def add(self, notes: RequestNotes, answer: EdgeAnswer, duration_ns: int) -> None:
        """Note one request."""
        if self._file is None:
            return
        if len(self._lines) >= MOST_LINES:
            self.dropped += 1
            return
        self._lines.append(
            (
                notes.received_unix_ns,
                notes.listener,
                notes.request_id,
                notes.method,
                notes.path,
                notes.route,
                answer.status,
                answer.reason,
                notes.bytes_in,
                duration_ns,
                notes.remote,
                answer.event_ids[0] if answer.event_ids else "",
            )
        )

    def turned_away(self, listener: str, status: int, reason: str, remote: str, now_unix_ns: int) -> None:
        """Note a request that no application saw."""
        notes = RequestNotes("", listener, now_unix_ns, remote=remote)
        self.add(notes, EdgeAnswer(status, reason), 0)

    async def flush(self) -> None:
        """Write what has been noted."""
        if self._file is None or not self._lines:
            return
        lines, self._lines = self._lines, deque()
        await asyncio.to_thread(self._write, lines)

    def _write(self, lines: deque[tuple[object, ...]]) -> None:
        assert self._file is not None
        self._file.write("".join(self._line(each) for each in lines))
        self._file.flush()

    def _line(self, line: tuple[object, ...]) -> str:
        at, listener, request_id, method, path, route, status, reason, size, duration_ns, remote, event = line
        assert isinstance(at, int) and isinstance(duration_ns, int)
        when = datetime.fromtimestamp(at / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        duration_ms = round(duration_ns / 1e6, 2)
        if self._text:
            return (
                f"{when} {listener} {remote or '-'} {method or '-'} {path or '-'} {status} {reason} {size}B "
                f"{duration_ms}ms {request_id or '-'}\n"
            )
        found = {
            "ts": when,
            "listener": listener,
            "request_id": request_id,
            "method": method,
            "path": path,
            "route": route,
            "status": status,
            "reason": reason,
            "bytes": size,
            "duration_ms": duration_ms,
            "remote": remote,
            "event_id": event,
        }
        return orjson.dumps({name: value for name, value in found.items() if value != ""}).decode() + "\n"


def _opened(sink: LogSink) -> TextIO:
    match sink.output:
        case "stdout":
            return sys.stdout
        case "file" if sink.path:
            try:
                return Path(sink.path).open("a", encoding="utf-8")
            except OSError as error:
                raise StateError(
                    f"The access log {sink.path} cannot be written: {error.strerror}.",
                    reason="log-unwritable",
                ) from None
    return sys.stderr
