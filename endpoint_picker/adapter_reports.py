"""What Fairlead's adapters beside the engines of the pool report: the requests that they have, and whose they are."""

import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

from endpoint_picker.core.endpoint_pool import Pick
from endpoint_picker.core.picker_queue import background
from endpoint_picker.picker import Picker
from fairlead.errors import InvalidRequest
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from global_scheduler.core.fleet import WorkerIdentity
from global_scheduler.wire import accepted_from, identity_from

log = logging.getLogger(__name__)
NAME = "fairlead.v1.Scheduler"
ATTACHED = scheduler_pb2.WorkerCommand(attached=scheduler_pb2.Attached())


class AttachedAdapter:
    """One stream of an adapter: the requests of gateways that it has for the endpoint beside it."""

    def __init__(self, picker: Picker, hello: scheduler_pb2.Hello) -> None:
        """Raises InvalidRequest for a worker that is no adapter, or does not say what every worker says."""
        if not hello.engine_address:
            raise InvalidRequest(
                "must be given: only adapters beside engines attach to a picker", "hello.engine_address"
            )
        self.endpoint = hello.engine_address
        self._picker = picker
        self._identity: WorkerIdentity = identity_from(hello)
        self._requests: dict[tuple[str, int], Pick] = {}
        self._is_current = True
        self._accepted(hello.requests)

    def report(self, report: scheduler_pb2.WorkerReport) -> None:
        """Record what has come, what has ended and what waits. Blocks are known from the engine itself."""
        if not self._is_current:
            return
        if report.HasField("load"):
            self._picker.waits_outside_engine(self.endpoint, report.load.waiting)
        self._accepted(report.progress.accepted)
        for end in report.progress.ended:
            pick = self._requests.pop((end.request_id, end.attempt), None)
            if pick is None:
                continue
            if end.started:
                self._picker.measured(pick, end.output_tokens)
            else:
                self._picker.refused(pick)

    def close(self) -> None:
        """Take its requests out of the books; they enter again if the adapter comes back with them."""
        self._is_current = False
        for pick in self._requests.values():
            self._picker.refused(pick)
        self._requests.clear()
        self._picker.waits_outside_engine(self.endpoint, 0)

    def _accepted(self, messages: Iterable[scheduler_pb2.AcceptedRequest]) -> None:
        for message in messages:
            if (message.request_id, message.attempt) in self._requests:
                continue
            try:
                request = accepted_from(message, self._identity)
            except InvalidRequest as error:  # the stream carries all other requests of the adapter
                log.error("request is malformed", extra={"request_id": message.request_id, "error": error.message})
                continue
            if request.background:
                request = replace(request, client=background(request.client))
            pick = self._picker.entered(self.endpoint, request, message.cached_tokens)
            if pick is not None:
                self._requests[message.request_id, message.attempt] = pick


class AdapterReports(scheduler_pb2_grpc.SchedulerServicer):
    """The one call of a scheduler that adapters need: they attach to a picker as to any scheduler.

    A gateway's requests reach engines through adapters, Envoy's without. So the accounts of clients are those of both.
    """

    def __init__(self, picker: Picker) -> None:
        self._picker = picker
        self._adapters: dict[str, AttachedAdapter] = {}  # by endpoint

    @property
    def attached(self) -> int:
        return len(self._adapters)

    async def Attach(
        self, request_iterator: AsyncIterator[scheduler_pb2.WorkerReport], context: Any
    ) -> AsyncIterator[scheduler_pb2.WorkerCommand]:
        """Follow the requests of an adapter as long as the stream lasts."""
        adapter: AttachedAdapter | None = None
        try:
            async for report in request_iterator:
                if adapter is None:
                    adapter = self._attach(report.hello)
                    yield ATTACHED
                else:
                    adapter.report(report)
        finally:
            if adapter is not None:
                self._detach(adapter)

    def _attach(self, hello: scheduler_pb2.Hello) -> AttachedAdapter:
        earlier = self._adapters.get(hello.engine_address)
        if earlier is not None:
            self._detach(earlier)
        adapter = self._adapters[hello.engine_address] = AttachedAdapter(self._picker, hello)
        log.info("an adapter has attached", extra={"endpoint": adapter.endpoint, "adapter": hello.worker})
        return adapter

    def _detach(self, adapter: AttachedAdapter) -> None:
        adapter.close()
        if self._adapters.get(adapter.endpoint) is adapter:
            del self._adapters[adapter.endpoint]
