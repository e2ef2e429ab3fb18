"""Readings of a running mesh: two of its services' states, and the rates between them.

Never keeps more than the last reading.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from snavio.clock import Clock
from snavio.launch.probes import Probes
from snavio.launch.processes import SERVICES
from snavio.v1.introspection_pb2 import StatusResponse

_OUTCOME = "outcome."
_DELIVERED = ("delivered", "duplicate")
_TOPIC = "topic."
_TOPIC_NUMBERS = ("ready", "inflight", "oldest_age_ms")


@dataclass(frozen=True, slots=True)
class LatencyReading:
    """Percentiles in microseconds over about a minute."""

    count: int
    p50_us: int
    p95_us: int
    p99_us: int
    max_us: int


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """One service."""

    name: str
    serving: bool
    pid: int = 0
    uptime_s: float = 0.0
    resident_bytes: int = 0
    cpu_percent: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    times: dict[str, LatencyReading] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicReading:
    """The backlog of one target."""

    topic: str
    ready: int
    inflight: int
    oldest_age_ms: int


@dataclass(frozen=True, slots=True)
class MeshReading:
    """The whole mesh; rates are per second since the reading before."""

    services: tuple[ServiceReading, ...]
    in_per_s: float
    delivered_per_s: float
    refused_per_s: dict[str, float]
    delivered: int
    refused: dict[str, int]
    topics: tuple[TopicReading, ...]

    def service(self, name: str) -> ServiceReading:
        """One of its services."""
        return next(service for service in self.services if service.name == name)

    def times(self, service: str, name: str) -> LatencyReading | None:
        """The duration of a step; None when it did not happen in the last minute."""
        times = self.service(service).times.get(name)
        return times if times is not None and times.count else None

    @property
    def healthy(self) -> bool:
        """Every service answers."""
        return all(service.serving for service in self.services)

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {"healthy": self.healthy, **asdict(self)}


class Readings:
    """Takes readings of one mesh."""

    def __init__(self, probes: Probes, *, clock: Clock) -> None:
        self._probes = probes
        self._clock = clock
        self._before: dict[str, StatusResponse | None] = {}
        self._before_mono_ns = 0

    async def take(self) -> MeshReading:
        """Read the status of every service; the first reading has no rates."""
        now_mono_ns = self._clock.mono_ns()
        statuses = await self._probes.statuses()
        elapsed_s = (now_mono_ns - self._before_mono_ns) / 1e9
        services = tuple(self._service(name, statuses[name], elapsed_s) for name in SERVICES)
        outcomes, rates = self._outcomes(statuses["shield"], elapsed_s)
        self._before, self._before_mono_ns = statuses, now_mono_ns
        return MeshReading(
            services=services,
            in_per_s=sum(rates.values()),
            delivered_per_s=sum(rates.get(reason, 0.0) for reason in _DELIVERED),
            refused_per_s={reason: rate for reason, rate in rates.items() if reason not in _DELIVERED},
            delivered=sum(outcomes.get(reason, 0) for reason in _DELIVERED),
            refused={reason: count for reason, count in outcomes.items() if reason not in _DELIVERED},
            topics=_topics(statuses["mailbox"]),
        )

    def _service(self, name: str, status: StatusResponse | None, elapsed_s: float) -> ServiceReading:
        if status is None:
            return ServiceReading(name, serving=False)
        before = self._same_process(name, status)
        used_us = status.cpu_us - before.cpu_us if before is not None else 0
        return ServiceReading(
            name,
            serving=True,
            pid=status.pid,
            uptime_s=max(0.0, (self._clock.unix_ns() - status.started_unix_ns) / 1e9),
            resident_bytes=status.resident_bytes,
            cpu_percent=used_us / elapsed_s / 1e4 if before is not None else 0.0,
            counters={counter.name: counter.value for counter in status.counter},
            gauges={gauge.name: gauge.value for gauge in status.gauge},
            times={
                timed.name: LatencyReading(
                    timed.count, timed.p50_us, timed.p95_us, timed.p99_us, timed.max_us
                )
                for timed in status.latency
            },
        )

    def _outcomes(
        self, status: StatusResponse | None, elapsed_s: float
    ) -> tuple[dict[str, int], dict[str, float]]:
        """Commands per reason so far, and per second."""
        if status is None:
            return {}, {}
        now = _counted(status)
        before = self._same_process("shield", status)
        if before is None:
            return now, {}
        then = _counted(before)
        return now, {reason: (count - then.get(reason, 0)) / elapsed_s for reason, count in now.items()}

    def _same_process(self, name: str, status: StatusResponse) -> StatusResponse | None:
        """The reading before, unless the service was restarted since: its counters began anew."""
        before = self._before.get(name)
        same = before is not None and before.started_unix_ns == status.started_unix_ns
        return before if same else None


def _counted(status: StatusResponse) -> dict[str, int]:
    return {
        counter.name.removeprefix(_OUTCOME): counter.value
        for counter in status.counter
        if counter.name.startswith(_OUTCOME)
    }


def _topics(status: StatusResponse | None) -> tuple[TopicReading, ...]:
    found: dict[str, dict[str, int]] = {}
    for gauge in status.gauge if status is not None else ():
        topic, _, number = gauge.name.removeprefix(_TOPIC).rpartition(".")
        # A topic has more gauges than these, those of its shards among them: a mesh must not stop for a new one.
        if gauge.name.startswith(_TOPIC) and number in _TOPIC_NUMBERS:
            found.setdefault(topic, {})[number] = int(gauge.value)
    return tuple(
        TopicReading(topic, **numbers)
        for topic, numbers in found.items()
        if len(numbers) == len(_TOPIC_NUMBERS)
    )
