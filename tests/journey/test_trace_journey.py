"""One trace from a producer over the five stations of a command, as an OTLP receiver sees it.

snavio/sdk/tracing.py             the producer's span, or an id where the program uses no OpenTelemetry
snavio/domain/trace_context.py    the spans of the stations follow from the command, which nobody rewrites
native/src/core/sampled.rs        finds sampled commands in a batch
snavio/observe/tracer.py          tells a span at Shield, Fast, Slow and the mailbox, linked with its batch's
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator

import pytest

from snavio.v1.registry_pb2 import PROFILE_SYNC
from tests.support.collector import Collector, without_parent
from tests.support.mesh import NAME, SOURCE, TARGET, TENANT, DemoMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")
COLD = "careful-bot"
SECONDS = 60
COUNT = 3


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector = Collector()
    collector.start()
    given = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_EXPORTER_OTLP_INSECURE": "true",
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
    }
    os.environ.update(given)
    yield collector
    for name in given:
        os.environ.pop(name)
    collector.stop()


@pytest.fixture(scope="module")
def mesh_settings(collector: Collector) -> dict[str, dict[str, object]]:
    assert collector.endpoint
    return {"mesh": {"pull_interval_ms": 100, "traces_exporter": "otlp", "metrics_exporter": "otlp"}}


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.claim_target(COLD, TENANT)
        await operator.put_route(COLD, NAME, profile=PROFILE_SYNC)
        await operator.grant(SOURCE, COLD, NAME)


async def run_program(mesh: DemoMesh, *targets: str) -> list[tuple[str, str, str]]:
    """(target, trace id, command id) of what it sent."""
    addresses = mesh.addresses
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.traced_program"),
        *(addresses[name] for name in ("shield", "signer", "mailbox")),
        *(str(mesh.certificates("")), str(COUNT), *targets),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        told, errors = await program.communicate()
    assert program.returncode == 0, errors.decode()
    found = [tuple(line.split()) for line in told.decode().splitlines()]
    return [(target, trace, command) for target, trace, command in found]


async def complete(collector: Collector, trace_id: str, services: set[str]) -> dict[str, object]:
    try:
        async with asyncio.timeout(SECONDS):
            while not services <= set(collector.trace(trace_id)):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"only {sorted(collector.trace(trace_id))} of {sorted(services)}") from None
    return dict(collector.trace(trace_id))


async def test_one_trace_has_the_spans_of_all_five_stations(mesh: DemoMesh, collector: Collector) -> None:
    sent = await run_program(mesh, TARGET, COLD)
    assert len(sent) == 2 * COUNT
    for target, trace_id, command_id in sent:
        stations = {"shield", "fast", "mailbox", "program"} | ({"slow"} if target == COLD else set())
        await complete(collector, trace_id, {*stations, f"program consume acme/{target}"} - {"program"})
        spans = collector.trace(trace_id)
        assert without_parent(spans) == []
        assert {name.split()[0] for name in spans} == stations
        by_id = {span.span_id: name for name, span in spans.items()}
        above = {name.split()[0]: by_id.get(span.parent_span_id, "") for name, span in spans.items()}
        assert above["fast"] == "shield"
        assert above["mailbox"] == ("slow" if target == COLD else "fast")
        consumed = spans[
            next(name for name in spans if "consume" in name or spans[name].name.startswith("cons"))
        ]
        assert by_id[consumed.parent_span_id] == "mailbox"
        for name in ("shield", "fast", "mailbox"):
            told = {each.key: each.value.string_value for each in spans[name].attributes}
            assert told["snavio.command_id"] == told["snavio.corr_id"] == command_id
            assert told["snavio.verdict"] == "delivered"
            assert spans[name].start_time_unix_nano <= spans[name].end_time_unix_nano


async def test_spans_are_linked_with_the_batch_that_they_came_in(
    mesh: DemoMesh, collector: Collector
) -> None:
    ((_, trace_id, _), *_) = await run_program(mesh, TARGET)
    await complete(collector, trace_id, {"shield", "fast", "mailbox"})
    everything = {span.span_id: span for _, span in collector.spans()}
    for station in ("shield", "fast", "mailbox"):
        span = collector.trace(trace_id)[station]
        (link,) = span.links
        batch = everything[link.span_id]
        assert batch.trace_id == link.trace_id and batch.name == f"{station} batch"
        assert span.span_id in {each.span_id for each in batch.links}


async def test_a_producer_without_opentelemetry_begins_whole_traces_too(
    mesh: DemoMesh, collector: Collector
) -> None:
    """Shield tells the span of the producer, so that no parent is missing; explain and logs name the trace."""
    from snavio.admin.explain import explain

    async with mesh.producer() as producer:
        outcome = await producer.send(TARGET, NAME, b"x")
    async with asyncio.timeout(SECONDS):
        while True:
            found = await explain(
                outcome.command_id,
                addresses=mesh.addresses,
                certificates=mesh.certificates("operator-admin"),
                trust_domain="snavio.local",
            )
            if found.trace is not None and found.trace.trace_id:
                break
            await asyncio.sleep(0.1)
    trace_id = found.trace.trace_id
    await complete(collector, trace_id, {"shield", "fast", "mailbox"})
    async with asyncio.timeout(SECONDS):
        while len(collector.trace(trace_id)) < 4:
            await asyncio.sleep(0.1)
    spans = collector.trace(trace_id)
    assert without_parent(spans) == []
    (root,) = (span for span in spans.values() if not span.parent_span_id)
    assert root.name == f"send {TARGET}"
    for service in ("shield", "fast", "mailbox"):
        log = mesh.processes.log(service).read_text()
        line = next(line for line in log.splitlines() if trace_id in line)
        assert f'"corr_id":"{outcome.command_id}"' in line


async def test_a_process_tells_at_most_so_many_commands_a_second(
    mesh: DemoMesh, collector: Collector
) -> None:
    """However many are sampled: a producer that samples everything does not make the mesh pay for it."""
    before = len(collector.spans())
    trace = "00-{:032x}-00f067aa0ba902b7-01"
    began = asyncio.get_running_loop().time()
    async with mesh.producer() as producer:
        for start in range(0, 600, 100):
            await asyncio.gather(
                *(
                    producer.send(TARGET, NAME, b"x", traceparent=trace.format(start + number + 1))
                    for number in range(100)
                )
            )
    took_s = asyncio.get_running_loop().time() - began
    await asyncio.sleep(3)
    told = [span for service, span in collector.spans()[before:] if service == "shield"]
    commands = [span for span in told if span.name.startswith("shield ") and "batch" not in span.name]
    assert 0 < len(commands) <= 20 * (int(took_s) + 2)


async def test_metrics_reach_the_collector_under_their_exact_names(
    mesh: DemoMesh, collector: Collector
) -> None:
    async with mesh.producer() as producer:
        assert (await producer.send(TARGET, NAME, b"x")).delivered
    wanted = {
        "fast": (
            "Snavio.Cache.Usage.Fresh",
            "Snavio.Dedup.DuplicatesPrevented",
            "snavio.route.commands_total",
        ),
        "shield": ("Snavio.Cache.HMAC.RefreshDuration", "snavio.shield.answer_seconds"),
        "mailbox": ("queue_depth", "inflight", "enqueue_latency_seconds"),
    }
    async with asyncio.timeout(SECONDS):
        while not all(set(names) <= collector.points[service].keys() for service, names in wanted.items()):
            await asyncio.sleep(0.1)
    counted = collector.points["fast"]["Snavio.Cache.Usage.Fresh"]
    assert counted.unit == "{command}" and counted.sum.is_monotonic
    times = collector.points["mailbox"]["enqueue_latency_seconds"].histogram.data_points[0]
    assert sum(times.bucket_counts) == times.count > 0
