"""A real OTLP/gRPC receiver, for tests of what is exported."""

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver(rpc.TraceServiceServicer):
    """A real OTLP receiver that keeps (service, span)."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        self._instances: dict[bytes, str] = {}  # by span id

    def Export(
        self, request: pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> pb.ExportTraceServiceResponse:
        for group in request.resource_spans:
            process = {item.key: item.value.string_value for item in group.resource.attributes}
            spans = [span for scope in group.scope_spans for span in scope.spans]
            self.spans += [(process["service.name"], span) for span in spans]
            self._instances |= {span.span_id: process["service.instance.id"] for span in spans}
        return pb.ExportTraceServiceResponse()

    def instance(self, span: Span) -> str:
        """The process that the span is of."""
        return self._instances[span.span_id]

    def named(self, name: str) -> list[Span]:
        return [span for _, span in self.spans if span.name == name]

    def below(self, parent: Span) -> list[tuple[str, Span]]:
        children = [(service, span) for service, span in self.spans if span.parent_span_id == parent.span_id]
        return sorted(children, key=lambda child: (child[1].start_time_unix_nano, child[1].end_time_unix_nano))


class MetricsReceiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    """A real OTLP receiver that keeps (service, name) of every metric."""

    def __init__(self) -> None:
        self.metrics: set[tuple[str, str]] = set()
        self.instances: dict[str, str] = {}  # by service

    def Export(
        self, request: metrics_service_pb2.ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> metrics_service_pb2.ExportMetricsServiceResponse:
        for group in request.resource_metrics:
            process = {item.key: item.value.string_value for item in group.resource.attributes}
            service = process["service.name"]
            self.instances[service] = process["service.instance.id"]
            self.metrics |= {(service, metric.name) for scope in group.scope_metrics for metric in scope.metrics}
        return metrics_service_pb2.ExportMetricsServiceResponse()
