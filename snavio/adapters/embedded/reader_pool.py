"""A pool of connections to one SQLite file for concurrent readers, opened on demand.

Never makes a reader wait for a reader that hangs while another connection can be had, and never waits without a limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from snavio.errors import Unavailable

MAX_CONNECTIONS = 6
WAIT_S = 10.0
HANG_S = 1.0


class ReaderPool:
    """`connect()` opens one more connection. Thread-safe."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._idle = [connect()]
        self._count = 1
        self._busy: dict[int, float] = {}
        self._shut_out = False
        self._changed = threading.Condition()

    @contextmanager
    def reader(self) -> Iterator[Any]:
        """A connection for exclusive use. Unavailable when none becomes free in time."""
        connection = self._take()
        try:
            yield connection
        finally:
            with self._changed:
                self._busy.pop(id(connection))
                self._idle.append(connection)
                self._changed.notify_all()

    def _take(self) -> Any:
        with self._changed:
            had = self._changed.wait_for(
                lambda: not self._shut_out and (self._idle or self._count < MAX_CONNECTIONS), WAIT_S
            )
            if not had:
                raise Unavailable("Every connection to the store is in use.", reason="reads-hang")
            if self._idle:
                connection = self._idle.pop()
                self._busy[id(connection)] = time.monotonic()
                return connection
            self._count += 1
        try:
            connection = self._connect()
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()
            raise
        with self._changed:
            self._busy[id(connection)] = time.monotonic()
        return connection

    @contextmanager
    def shut_out(self, within_s: float) -> Iterator[bool]:
        """Keep readers out while this lasts; true if all have left in time. False at once when a reader hangs."""
        with self._changed:
            longest = time.monotonic() - min(self._busy.values(), default=time.monotonic())
            if longest > HANG_S:
                empty = False
            else:
                self._shut_out = True
                empty = self._changed.wait_for(lambda: not self._busy, within_s)
        try:
            yield empty
        finally:
            with self._changed:
                self._shut_out = False
                self._changed.notify_all()

    def close(self) -> None:
        """Close the idle connections; the pool is not used afterwards."""
        with self._changed:
            while self._idle:
                self._idle.pop().close()
