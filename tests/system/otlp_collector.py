"""An OTLP collector (HTTP, protobuf) on a free loopback port."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.spans: list[Span] = []
        self.metrics: list[Metric] = []
        self.services: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def wait_for(self, found: Callable[[list[Span]], bool], within: float = 60.0) -> list[Span]:
        end = time.monotonic() + within
        with self._changed:
            while not found(self.spans):
                left = end - time.monotonic()
                assert left > 0, [each.name for each in self.spans]
                self._changed.wait(left)
            return list(self.spans)

    def _receive(self, path: str, body: bytes) -> bytes:
        with self._changed:
            if path == "/v1/traces":
                for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for each in sent.resource.attributes:
                        if each.key == "service.name":
                            self.services.add(each.value.string_value)
                    for scope in sent.scope_spans:
                        self.spans += scope.spans
                answer = ExportTraceServiceResponse().SerializeToString()
            else:
                assert path == "/v1/metrics", path
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for measured in resource.scope_metrics:
                        self.metrics += measured.metrics
                answer = ExportMetricsServiceResponse().SerializeToString()
            self._changed.notify_all()
        return bytes(answer)

    def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                answer = collector._receive(self.path, body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None: ...

        return Handler
