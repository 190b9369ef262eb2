"""The record of ended calls: each is counted, logged without prompt or output, and passed to telemetry once."""

import logging
import time

from fairlead.errors import FairleadError, InvalidRequest
from fairlead.outcomes import Outcome
from gateway.accounting import Accounting
from gateway.call import Call, new_id
from gateway.metrics import CallMetrics
from serving.telemetry.records import CallRecord, InteractionRecord
from serving.telemetry.traces import Traces
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import FinishedInteraction

log = logging.getLogger(__name__)


class CallLog:
    """The log of calls and interactions; it receives each of them once, after its end."""

    def __init__(self, traces: Traces, metrics: CallMetrics) -> None:
        self.accounting = Accounting()
        self._traces = traces
        self._metrics = metrics
        # Interactions whose root span is the caller's. The set is never iterated: its order is not deterministic.
        self._traced_by_caller: set[InteractionKey] = set()

    def ended(self, call: Call) -> None:
        """Record a call whose outcome has just been set."""
        assert call.outcome is not None
        if call.entered and call.traceparent:
            self._traced_by_caller.add(InteractionKey(call.client, call.app, call.interaction))
        record = _record(call, call.outcome, self.accounting.ended(call))
        log.info(
            "call ended",
            extra={
                "request_id": record.request_id,
                "caller_request_id": record.caller_request_id,
                "outcome": record.outcome.name,
                "client": record.client,
                "interaction": record.interaction,
                "app": record.app,
                "named_app": record.named_app,
                "model": record.model,
                "worker": record.worker,
                "attempts": call.attempts,
                "prompt_tokens": record.prompt_tokens,
                "cached_tokens": record.cached_tokens,
                "output_tokens": record.output_tokens,
                "service": record.service,
                "seconds": (record.finished - record.received) / 1e9,
                "reason": call.message,
            },
        )
        self._traces.call(record)
        self._metrics.call(record)

    def closed(self, interaction: FinishedInteraction) -> None:
        """Record an interaction that has closed."""
        started = self.accounting.closed(interaction)
        key = interaction.key
        log.info(
            "interaction closed",
            extra={
                "client": key.client,
                "app": key.app,
                "interaction": key.id,
                "calls": interaction.calls,
                "reason": interaction.reason.value,
            },
        )
        ended = time.time_ns()
        record = InteractionRecord(
            client=key.client,
            app=key.app,
            interaction=key.id,
            calls=interaction.calls,
            reason=interaction.reason.value,
            started=ended if started is None else min(started, ended),  # the clock may have been set back
            ended=ended,
        )
        self._metrics.interaction(record)
        if key in self._traced_by_caller:
            self._traced_by_caller.remove(key)
        elif started is not None:  # if no call of it came here, the trace belongs to another gateway
            self._traces.interaction(record)


def reason(error: FairleadError) -> str:
    """Return the reason for the log; for an invalid request only the field, as the message may repeat its content."""
    return error.field if isinstance(error, InvalidRequest) else error.message


def note_refusal(error: FairleadError) -> str:
    """Log the refusal of a request other than a call; return its new id, which the log and the caller's error carry."""
    request_id = new_id()
    log.info(
        "request refused",
        extra={"request_id": request_id, "outcome": error.outcome.name, "reason": reason(error)},
    )
    return request_id


def _record(call: Call, outcome: Outcome, is_rooted: bool) -> CallRecord:
    usage, timings, predicted, waited = call.usage, call.timings, call.predicted_wait, call.waited
    return CallRecord(
        client=call.client,
        app=call.app,
        named_app=call.named_app,
        interaction=call.interaction,
        is_rooted=is_rooted,
        stage=call.stage,
        request_id=call.request_id,
        caller_request_id=call.caller_request_id,
        model=call.model,
        operation=call.operation,
        worker=call.worker,
        worker_instance=call.worker_instance,
        scheduler=call.scheduler,
        policy=call.policy,
        tier=call.tier,
        traceparent=call.traceparent,
        sampling=call.sampling,
        outcome=outcome,
        finish_reason=call.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        system_tokens=usage.system_tokens,
        matched_tokens=call.matched_tokens,
        service=usage.service,
        retries=max(0, call.attempts - 1),
        prediction_error=None if predicted is None or waited is None else predicted - waited,
        received=timings.received,
        admitted=timings.admitted,
        dispatched=timings.dispatched,
        queued=timings.queued,
        scheduled=timings.scheduled,
        first_token=timings.first_token,
        finished=call.unix_time(),
    )
