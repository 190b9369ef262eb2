"""The gateway's services for operators: traces of interactions, and the accounting of their results."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

from fairlead.v1 import common_pb2, throttling_pb2, throttling_pb2_grpc, traces_pb2, traces_pb2_grpc
from gateway.accounting import Accounting
from gateway.upstream.placements import CHOOSERS, PlacementReason
from gateway.usage import UsageSource
from serving.telemetry.records import CallRecord, phases
from serving.telemetry.traces import Traces
from serving.usage_report import first_day
from throttler.store import Store

MOST_ROWS = 10_000  # of usage in one message


class TracesService(traces_pb2_grpc.TracesServicer):
    """The service fairlead.v1.Traces on the public listener; its calls must carry the admin secret."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    async def FindTrace(self, request: traces_pb2.FindTraceRequest, context: Any) -> traces_pb2.FindTraceResponse:
        return traces_pb2.FindTraceResponse(calls=[_message(call) for call in self._traces.find(request.id)])


class ThrottlingService(throttling_pb2_grpc.ThrottlingServicer):
    """The service fairlead.v1.Throttling on the public listener; its calls must carry the admin secret."""

    def __init__(
        self, accounting: Accounting, placements: Mapping[PlacementReason, int], store: Store, usage: UsageSource
    ) -> None:
        self._accounting = accounting
        self._usage = usage
        self._placements = placements
        self._store = store

    async def Account(self, request: throttling_pb2.AccountRequest, context: Any) -> throttling_pb2.AccountResponse:
        apps = [
            throttling_pb2.AppAccount(app=name, **asdict(account))
            for name, account in sorted(self._accounting.apps.items())
        ]
        placements = [
            throttling_pb2.PlacementCount(chosen_by=CHOOSERS[reason], reason=reason, count=count)
            for reason, count in self._placements.items()
        ]
        return throttling_pb2.AccountResponse(
            apps=apps,
            degraded=self._store.degraded,
            gateways=self._store.gateways,
            placements=placements,
            predictions=self._accounting.predictions,
            close_predictions=self._accounting.close_predictions,
        )

    async def Usage(
        self, request: throttling_pb2.UsageRequest, context: Any
    ) -> AsyncIterator[throttling_pb2.UsageResponse]:
        rows = await self._usage.rows(first_day(request.since))
        for begin in range(0, max(1, len(rows)), MOST_ROWS):
            chunk = [throttling_pb2.UsageRow(**each._asdict()) for each in rows[begin : begin + MOST_ROWS]]
            yield throttling_pb2.UsageResponse(ledger=self._usage.name, rows=chunk)


def _message(call: CallRecord) -> traces_pb2.TracedCall:
    return traces_pb2.TracedCall(
        request_id=call.request_id,
        caller_request_id=call.caller_request_id,
        client=call.client,
        app=call.app,
        named_app=call.named_app,
        interaction=call.interaction,
        stage=call.stage,
        model=call.model,
        worker=call.worker,
        policy=call.policy,
        outcome=f"OUTCOME_{call.outcome.name}",
        finish_reason=f"FINISH_REASON_{call.finish_reason.name}" if call.finish_reason else None,
        usage=common_pb2.Usage(
            prompt_tokens=call.prompt_tokens,
            cached_tokens=call.cached_tokens,
            output_tokens=call.output_tokens,
            system_tokens=call.system_tokens,
            service=call.service,
        ),
        matched_tokens=call.matched_tokens,
        retries=call.retries,
        traceparent=call.traceparent,
        received=call.received,
        finished=call.finished,
        phases=[
            traces_pb2.Phase(name=phase.name, service=phase.service, start=phase.start, end=phase.end)
            for phase in phases(call)
        ],
    )
