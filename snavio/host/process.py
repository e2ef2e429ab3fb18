"""Runs one service as a process: event loop, signals, logs, and a line on stdout when it is ready.

Never leaves a half-started process behind: what fails at start is said in one sentence, with exit code 2. Never
leaves a half-dead one either: when some of its background work cannot go on, the process drains and ends with 70.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog
import uvloop

from snavio.clock import Clock, SystemClock
from snavio.config import MeshSettings, S, load
from snavio.errors import SnavioError
from snavio.extras import install_hint
from snavio.host.background import Background, host
from snavio.telemetry.logs import configure

USAGE_ERROR = 2
LOST_WORK = 70
"""As `sysexits.h` has it for a fault of the program itself."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BLOCK_BYTES = 8 << 20
_KEPT_TOP_BYTES = 32 << 20
_PR_SET_PDEATHSIG = 1
FOLLOW_PARENT = "SNAVIO_FOLLOW_PARENT"
DRAIN_SECONDS = 10.0
# After a drain: for threads that the interpreter waits for at its end.
END_SECONDS = 5.0


T = TypeVar("T")


class App(Protocol):
    """One service, composed and not yet started."""

    async def start(self) -> int:
        """Serve; returns the port."""
        ...

    async def drain(self) -> None:
        """Stop taking work, finish what is under way within bounds, release everything."""
        ...


def run(
    name: str,
    settings_type: type[S],
    build: Callable[[MeshSettings, S, Clock], App],
    arguments: list[str] | None = None,
) -> int:
    """Run the service `name` until SIGTERM or SIGINT; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m services.{name}", description=f"Runs {name}.")
    parser.add_argument("--config", type=Path, default=None, help="path of snavio.toml")
    parsed = parser.parse_args(arguments)
    configure(service=name)
    keep_freed_memory()
    follow_parent()
    try:
        mesh, settings = load(settings_type, name, config=parsed.config)
        code: int = uvloop.run(
            serve(
                name,
                lambda: build(mesh, settings, SystemClock()),
                before=None if mesh.join_token is None else lambda: _join(name, mesh),
            )
        )
    except Exception as error:
        if (said := start_failure(error)) is None:
            raise
        sys.stderr.write(f"{name}: {said}\n")
        return USAGE_ERROR
    return code


def start_failure(error: Exception) -> str | None:
    """The sentence for an operator's mistake; None for a fault of the program, whose traceback is wanted."""
    match error:
        case SnavioError():
            return str(error)
        case ModuleNotFoundError():
            # The library of a back end is imported when a configuration asks for it.
            return install_hint(error, service=True)
        case OSError() if error.filename is not None:
            # A state folder that is a file, or that belongs to another user.
            return f"{error.filename} cannot be used: {error.strerror}."
    return None


def keep_freed_memory() -> None:
    """Tell glibc to keep batch-sized buffers instead of returning them to the system.

    A service takes and frees half a megabyte per batch and hop. By default each is mapped, zeroed page by
    page, and unmapped again, which costs more CPU than verifying what is in it.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_TOP_BYTES)


def follow_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies, if the parent asked for that and the system can."""
    if FOLLOW_PARENT in os.environ and sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


async def serve(
    name: str, build: Callable[[], App], *, before: Callable[[], Coroutine[Any, Any, bool]] | None = None
) -> int:
    """Run an app until a signal; returns the exit code. `before` is awaited first, and may take its time."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    background = Background()
    host(background)
    background.on_lost(stop.set)
    background.on_lost(_end_in_any_case)
    loop.set_exception_handler(lambda _loop, context: _unhandled(background, context))
    if before is not None and not await _unless(stop, before()):
        return 0
    app = build()
    log = structlog.get_logger()
    try:
        port = await _unless(stop, app.start())
        if port is not None:
            sys.stdout.write(f"ready {name} {port}\n")
            sys.stdout.flush()
            log.info("serving", port=port)
            await _until(stop)
    finally:
        # A second signal, or a drain that outlives its time, must still end the process.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await app.drain()
        log.info("stopped")
    return 0 if background.lost_work is None else LOST_WORK


def _unhandled(background: Background, context: dict[str, Any]) -> None:
    """Log and count an exception that reached the event loop, which would only print it."""
    message = str(context.get("message", ""))
    background.failed("callback", context.get("exception") or RuntimeError(message), message=message)


def _end_in_any_case() -> None:
    """End the process after a time even when a thread or a store hangs and keeps it from draining."""
    timer = threading.Timer(DRAIN_SECONDS + END_SECONDS, os._exit, (LOST_WORK,))
    timer.daemon = True
    timer.start()


async def _join(name: str, mesh: MeshSettings) -> bool:
    # Here: an instance that has its certificate, as nearly every one, starts without this.
    from snavio.host.joining import join

    await join(name, mesh)
    return True


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None when a signal came first, since a start may wait long for other services."""
    starting, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return await starting if starting.done() else None
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)


async def _until(stop: asyncio.Event) -> None:
    """Wait for the signal, or for the death of a parent that asked to be followed.

    SNAVIO_FOLLOW_PARENT is that parent's process id: a launcher that was killed with -9, even before we
    could ask the kernel, leaves no orphans behind.
    """
    parent = os.environ.get(FOLLOW_PARENT)
    if parent is None:
        await stop.wait()
        return
    while str(os.getppid()) == parent:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await stop.wait()
                return
