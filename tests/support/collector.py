"""A real OTLP receiver: gRPC, and the official messages."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(traces_grpc.TraceServiceServicer, metrics_grpc.MetricsServiceServicer):
    """Keeps every span with the service that told it, and the last points of every metric."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[str, Span]] = []
        self.points: dict[str, dict[str, Any]] = defaultdict(dict)
        """By service and name."""
        self._server: Any = None
        self.endpoint = ""

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        traces_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        metrics_grpc.add_MetricsServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def Export(self, request: Any, _context: Any) -> Any:
        if isinstance(request, metrics.ExportMetricsServiceRequest):
            with self._lock:
                for told in request.resource_metrics:
                    found = self.points[_service(told.resource)]
                    found.update({one.name: one for scope in told.scope_metrics for one in scope.metrics})
            return metrics.ExportMetricsServiceResponse()
        with self._lock:
            for told in request.resource_spans:
                service = _service(told.resource)
                self._spans += [(service, span) for scope in told.scope_spans for span in scope.spans]
        return traces.ExportTraceServiceResponse()

    def spans(self) -> list[tuple[str, Span]]:
        with self._lock:
            return list(self._spans)

    def trace(self, trace_id: str) -> dict[str, Span]:
        """The spans of one trace by the service that told them; a second one of a service has its name behind it."""
        found: dict[str, Span] = {}
        for service, span in self.spans():
            if span.trace_id.hex() == trace_id:
                key = service if service not in found else f"{service} {span.name}"
                assert key not in found, f"{key} twice in one trace"
                found[key] = span
        return found


def without_parent(spans: dict[str, Span]) -> list[str]:
    """Services whose span names a parent that nobody has told; there has to be exactly one root."""
    ids = {span.span_id for span in spans.values()}
    assert len(ids) == len(spans), "two spans with one id"
    assert sum(not span.parent_span_id for span in spans.values()) == 1, "not one root"
    return [name for name, span in spans.items() if span.parent_span_id and span.parent_span_id not in ids]


def _service(resource: Any) -> str:
    return str(next(each.value.string_value for each in resource.attributes if each.key == "service.name"))
