"""What a running service tells operators about itself: counters it keeps anyway, gauges, times, memory and CPU.

Never counts anything itself: a reading asks, and between readings it costs nothing.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from snavio.clock import Clock
from snavio.transport.call import Call
from snavio.transport.methods import Methods
from snavio.v1.introspection_pb2 import Counter, Gauge, Latency, StatusRequest, StatusResponse

METHOD: Final = "/snavio.v1.Introspection/Status"


class Times(Protocol):
    """Percentiles of durations, in microseconds."""

    @property
    def count(self) -> int: ...
    @property
    def p50_us(self) -> int: ...
    @property
    def p95_us(self) -> int: ...
    @property
    def p99_us(self) -> int: ...
    @property
    def max_us(self) -> int: ...


class Introspection:
    """One process's `Status`. Sources are added while it is composed and asked at every reading."""

    def __init__(self, service: str, *, clock: Clock, instance: str = "") -> None:
        self._service = service
        self._instance = instance or f"{service}-0"
        self._started_unix_ns = clock.unix_ns()
        self._counters: list[tuple[str, Callable[[], Mapping[str, int]]]] = []
        self._gauges: list[tuple[str, Callable[[], Mapping[str, float]]]] = []
        self._times: dict[str, Callable[[], Times]] = {}

    def counts(self, read: Callable[[], Mapping[str, int]], *, prefix: str = "") -> None:
        """Numbers that only grow."""
        self._counters.append((prefix, read))

    def gauges(self, read: Callable[[], Mapping[str, float]], *, prefix: str = "") -> None:
        """Numbers that go up and down."""
        self._gauges.append((prefix, read))

    def native(
        self, read: Callable[[], Mapping[str, int]], *, gauges: frozenset[str], prefix: str = ""
    ) -> None:
        """Counters of the native extension; those named in `gauges` also go down."""
        self.counts(lambda: {n: v for n, v in read().items() if n not in gauges}, prefix=prefix)
        self.gauges(lambda: {n: v for n, v in read().items() if n in gauges}, prefix=prefix)

    def link(self, name: str, connected: Callable[[], bool]) -> None:
        """Whether the stream to a next hop stands."""
        self._gauges.append((f"link.{name}.", lambda: {"connected": float(connected())}))

    def times(self, name: str, read: Callable[[], Times]) -> None:
        """How long something takes."""
        self._times[name] = read

    def register(self, methods: Methods) -> None:
        """Serve `Status`."""
        methods.unary(METHOD, self._status, StatusRequest)

    async def _status(self, _request: StatusRequest, _call: Call) -> StatusResponse:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return StatusResponse(
            service=self._service,
            instance=self._instance,
            version=program_version(),
            pid=os.getpid(),
            started_unix_ns=self._started_unix_ns,
            resident_bytes=resident_bytes(),
            cpu_us=round((used.ru_utime + used.ru_stime) * 1e6),
            counter=[
                Counter(name=prefix + name, value=value)
                for prefix, read in self._counters
                for name, value in read().items()
            ],
            gauge=[
                Gauge(name=prefix + name, value=value)
                for prefix, read in self._gauges
                for name, value in read().items()
            ],
            latency=[_latency(name, read()) for name, read in self._times.items()],
        )


def _latency(name: str, times: Times) -> Latency:
    return Latency(
        name=name,
        count=times.count,
        p50_us=times.p50_us,
        p95_us=times.p95_us,
        p99_us=times.p99_us,
        max_us=times.max_us,
    )


def resident_bytes() -> int:
    """Memory of this process that is in RAM now; where the system has no /proc, the most it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


@cache
def program_version() -> str:
    """Version of the installed program."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("snavio")
    except PackageNotFoundError:
        return "unknown"
