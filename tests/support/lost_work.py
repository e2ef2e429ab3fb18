"""A service whose background work is lost when it is told so on stdin: the process that `test_lost_work` watches."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from snavio.config import Section
from snavio.host import process
from snavio.host.background import background


class Settings(Section):
    """None."""


class App:
    """Its thread panics in every turn, exits, or hangs after the other has exited."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    async def start(self) -> int:
        if self._fault == "hangs":
            # The interpreter waits for it at its end, and it never comes.
            threading.Thread(target=threading.Event().wait).start()
        if self._fault == "task":
            background().keep("work", self._fail)
        else:
            background().thread("work", self._exit)
        return 1

    async def drain(self) -> None:
        if self._fault == "hangs":
            await asyncio.Event().wait()

    async def _fail(self) -> None:
        from snavio._native import panic_for_test

        background().patience_s = 0.2
        panic_for_test(True)

    def _exit(self) -> None:
        sys.stdin.readline()
        raise SystemExit(0)


def build(*_settings: Any) -> App:
    return App(sys.argv[1])


if __name__ == "__main__":
    process.DRAIN_SECONDS = process.END_SECONDS = 0.3
    sys.exit(process.run("fast", Settings, build, []))
