"""The state of a running service as operators see it: counters, gauges, latencies, memory and CPU.

Never counts anything itself: a reading asks, and between readings it costs nothing.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from heapq import nlargest
from pathlib import Path
from typing import Final, Protocol

from snavio.clock import Clock
from snavio.host.background import background
from snavio.host.shares import ShareLimit
from snavio.rpc.call import Call
from snavio.rpc.methods import Methods
from snavio.v1.introspection_pb2 import Counter, Gauge, Latency, ShareUse, StatusRequest, StatusResponse

# Tenants per bound in one answer; a small holder is not why a bound is full.
HOLDERS_TOLD: Final = 100
METHOD: Final = "/snavio.v1.Introspection/Status"


Sample = tuple[tuple[str, ...], float]
"""The values of a metric's labels, and its value."""


class SharesView(Protocol):
    """A bound that tenants share, counted by `Shares` or by the native extension."""

    @property
    def name(self) -> str: ...
    @property
    def limit(self) -> ShareLimit: ...
    @property
    def used(self) -> int: ...
    @property
    def refused(self) -> int: ...
    def holders(self) -> Mapping[str, int]: ...


class LatencySource(Protocol):
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


@dataclass(frozen=True, slots=True)
class LatencyTotals:
    """A histogram since the start: `up_to[s]` of `count` durations took at most `s` seconds."""

    count: int
    sum_s: float
    up_to: Mapping[float, int]


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """Readings of a process at one moment. A name may carry labels: `queue_depth{topic="acme/billing",shard="0"}`."""

    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    times: Mapping[str, LatencySource] = field(default_factory=dict)
    ever: Mapping[str, LatencyTotals] = field(default_factory=dict)

    def histograms(self) -> dict[str, float]:
        """Durations since the start as histograms in the form of Prometheus."""
        told: dict[str, float] = {}
        for name, ever in self.ever.items():
            for edge_s, count in (*ever.up_to.items(), ("+Inf", ever.count)):
                told[f'{name}_latency_seconds_bucket{{le="{edge_s}"}}'] = count
            told[f"{name}_latency_seconds_sum"] = ever.sum_s
            told[f"{name}_latency_seconds_count"] = ever.count
        return told

    def quantiles(self) -> dict[str, float]:
        """Percentiles of the last minute."""
        told: dict[str, float] = {}
        for name, times in self.times.items():
            for share, us in (("0.5", times.p50_us), ("0.95", times.p95_us), ("0.99", times.p99_us)):
                told[f'{name}_latency_recent_us{{quantile="{share}"}}'] = us
        return told


class Introspection:
    """The `Status` method of one process. Sources are added while the service is composed and read at every call."""

    def __init__(self, service: str, *, clock: Clock, instance: str = "") -> None:
        self.service = service
        self.instance = instance or f"{service}-0"
        self._started_unix_ns = clock.unix_ns()
        self._counters: list[tuple[str, Callable[[], Mapping[str, int]]]] = []
        self._gauges: list[tuple[str, Callable[[], Mapping[str, float]]]] = []
        self._for_people: list[Callable[[], Mapping[str, float]]] = []
        self._tables: list[tuple[Callable[[], Mapping[str, Iterable[Sample]]], frozenset[str]]] = []
        self._times: dict[str, Callable[[], LatencySource]] = {}
        self._ever: dict[str, Callable[[], LatencyTotals]] = {}
        self._shares: list[SharesView] = []
        self.counts(background().counters)

    def shares(self, *bounds: SharesView) -> None:
        """Add bounds that tenants share: `Status` lists their holders, and their refusals are counted."""
        self._shares += bounds
        self.counts(lambda: {each.name: each.refused for each in bounds}, prefix="share_refused.")
        self.gauges(lambda: {each.name: each.used for each in bounds}, prefix="share_used.")

    def counts(self, read: Callable[[], Mapping[str, int]], *, prefix: str = "") -> None:
        """Add numbers that only grow."""
        self._counters.append((prefix, read))

    def gauges(self, read: Callable[[], Mapping[str, float]], *, prefix: str = "") -> None:
        """Add numbers that go up and down."""
        self._gauges.append((prefix, read))

    def for_people(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Add gauges whose names contain words of callers, such as topics: in `Status`, but not exported."""
        self._for_people.append(read)

    def series(self, metric: str, read: Callable[[], Iterable[Sample]]) -> None:
        """Add the samples of a metric of `snavio.observe.metric_names`, such as a row for each route: exported, and
        not in `Status`.
        """
        self.tables(lambda: {metric: read()})

    def tables(
        self, read: Callable[[], Mapping[str, Iterable[Sample]]], *, forgets: frozenset[str] = frozenset()
    ) -> None:
        """The same for several metrics that are read together.

        `forgets` names the counters among them that may lose a row and begin it anew.
        """
        self._tables.append((read, forgets))

    def every_series(self) -> Iterator[tuple[str, Iterable[Sample], bool]]:
        """What was added so, and what every process has: metric, samples, and whether it forgets."""
        for read, forgets in (*self._tables, (self._own_series, frozenset[str]())):
            for metric, samples in read().items():
                yield metric, samples, metric in forgets

    def _own_series(self) -> Mapping[str, Iterable[Sample]]:
        return {
            "snavio.build_info": self._build(),
            "snavio.process.cpu_seconds_total": [((), cpu_seconds())],
            "snavio.process.start_time_seconds": [((), self._started_unix_ns / 1e9)],
            "snavio.share.limit": [((each.name,), each.limit.total) for each in self._shares],
            "snavio.share.tenant_used": self._holders(),
        }

    def _build(self) -> list[Sample]:
        return [((self.service, self.instance, program_version()), 1)]

    def _holders(self) -> list[Sample]:
        told: list[Sample] = []
        for bound in self._shares:
            holders = bound.holders()
            told += [
                ((bound.name, tenant), holders[tenant])
                for tenant in nlargest(HOLDERS_TOLD, holders, key=holders.__getitem__)
            ]
        return told

    def native(
        self, read: Callable[[], Mapping[str, int]], *, gauges: frozenset[str], prefix: str = ""
    ) -> None:
        """Add counters of the native extension; those named in `gauges` also go down."""
        self.counts(lambda: {n: v for n, v in read().items() if n not in gauges}, prefix=prefix)
        self.gauges(lambda: {n: v for n, v in read().items() if n in gauges}, prefix=prefix)

    def link(self, name: str, connected: Callable[[], bool]) -> None:
        """Add a gauge that is 1 while the stream to a next hop is connected."""
        self._gauges.append((f"link.{name}.", lambda: {"connected": float(connected())}))

    def times(
        self, name: str, read: Callable[[], LatencySource], *, ever: Callable[[], LatencyTotals] | None = None
    ) -> None:
        """Add a latency: recent percentiles, and totals since the start where they are counted."""
        self._times[name] = read
        if ever is not None:
            self._ever[name] = ever

    def reading(self) -> ServiceReport:
        """Every reading except those `for_people`; call on the thread that counts."""
        return ServiceReport(
            {prefix + name: value for prefix, read in self._counters for name, value in read().items()},
            {
                **{prefix + name: value for prefix, read in self._gauges for name, value in read().items()},
                "process.resident_bytes": float(resident_bytes()),
            },
            {name: read() for name, read in self._times.items()},
            {name: read() for name, read in self._ever.items()},
        )

    def register(self, methods: Methods) -> None:
        """Serve `Status`."""
        methods.unary(METHOD, self._status, StatusRequest)

    async def _status(self, request: StatusRequest, _call: Call) -> StatusResponse:
        return StatusResponse(
            service=self.service,
            instance=self.instance,
            version=program_version(),
            pid=os.getpid(),
            started_unix_ns=self._started_unix_ns,
            resident_bytes=resident_bytes(),
            cpu_us=round(cpu_seconds() * 1e6),
            counter=[
                Counter(name=prefix + name, value=value)
                for prefix, read in self._counters
                for name, value in read().items()
            ],
            gauge=[
                Gauge(name=prefix + name, value=value)
                for prefix, read in (*self._gauges, *(("", read) for read in self._for_people))
                for name, value in read().items()
            ],
            latency=[_latency(name, read()) for name, read in self._times.items()],
            share=[_share_use(each, request.tenant) for each in self._shares],
        )


def _share_use(shares: SharesView, tenant: str) -> ShareUse:
    holders, limit = shares.holders(), shares.limit
    told = nlargest(HOLDERS_TOLD, holders, key=holders.__getitem__)
    if tenant and tenant in holders and tenant not in told:
        told.append(tenant)
    return ShareUse(
        bound=shares.name,
        total=limit.total,
        per_tenant=limit.per_tenant,
        reserve=limit.reserve,
        used=shares.used,
        refused=shares.refused,
        holder=[ShareUse.Holder(tenant=each, used=holders[each]) for each in told],
    )


def _latency(name: str, times: LatencySource) -> Latency:
    return Latency(
        name=name,
        count=times.count,
        p50_us=times.p50_us,
        p95_us=times.p95_us,
        p99_us=times.p99_us,
        max_us=times.max_us,
    )


def resident_bytes() -> int:
    """Resident memory of this process; on systems without /proc, its highest value so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def cpu_seconds() -> float:
    """CPU time that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@cache
def program_version() -> str:
    """Version of the installed program."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("snavio")
    except PackageNotFoundError:
        return "unknown"
