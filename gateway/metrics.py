"""The gateway's metrics: every call once, after its end, and a few states at each collection."""

from collections.abc import Callable, Iterable, Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, NoOpMeter, Observation
from opentelemetry.trace import NonRecordingSpan

from fairlead.outcomes import Outcome
from gateway.accounting import Accounting
from gateway.upstream.placements import CHOOSERS, PlacementReason
from serving.telemetry.metrics import CappedLabel, Counter, observe, observe_by
from serving.telemetry.records import CallRecord, InteractionRecord, phases
from serving.telemetry.spans import call_context

MOST_APPS = 100
NO_TIER = "none"  # the label of clients whose key has no tier
# Bucket boundaries, in seconds, of the GenAI semantic conventions.
REQUEST_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
PREDICTION_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
FIRST_TOKEN_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


class CallMetrics:
    """Instruments for ended calls; users are not a label and apps are capped, because callers choose their names."""

    def __init__(self, meter: Meter) -> None:
        self._apps = CappedLabel(MOST_APPS)
        self._are_read = not isinstance(meter, NoOpMeter)
        self._calls = Counter(
            meter, "fairlead.calls", ("model", "app", "outcome"), description="Calls that ended, by outcome"
        )
        self._retries = Counter(
            meter, "fairlead.retries", ("model",), description="Dispatches of a call after its first"
        )
        self._tokens = Counter(
            meter, "fairlead.tokens", ("model", "kind"), description="Tokens of calls: input, cached, output"
        )
        self._wasted = Counter(
            meter,
            "fairlead.tokens.wasted",
            ("outcome",),
            description="Tokens computed for calls that did not complete",
        )
        self._service = Counter(
            meter,
            "fairlead.service",
            ("tier", "app"),
            description="Service charged, in cost units, by the client's tier",
        )
        self._interactions = Counter(
            meter, "fairlead.interactions", ("app", "reason"), description="Interactions that closed"
        )
        self._duration = meter.create_histogram(
            "gen_ai.server.request.duration",
            "s",
            "From a call's arrival at the gateway to its end",
            explicit_bucket_boundaries_advisory=REQUEST_SECONDS,
        )
        self._first = meter.create_histogram(
            "gen_ai.server.time_to_first_token",
            "s",
            "From a call's arrival at the gateway to its first token",
            explicit_bucket_boundaries_advisory=FIRST_TOKEN_SECONDS,
        )
        self._each = meter.create_histogram(
            "gen_ai.server.time_per_output_token",
            "s",
            "Between output tokens after the first",
            explicit_bucket_boundaries_advisory=TOKEN_SECONDS,
        )
        self._prediction = meter.create_histogram(
            "fairlead.wait.prediction.error",
            "s",
            "By how much calls' predicted waits for a start were wrong, by direction: too_long or too_short",
            explicit_bucket_boundaries_advisory=PREDICTION_SECONDS,
        )
        self._phases = meter.create_histogram(
            "fairlead.phase.duration",
            "s",
            "Where completed calls' time went: admit, select, queue, prefill, decode",
            explicit_bucket_boundaries_advisory=REQUEST_SECONDS,
        )

    def call(self, call: CallRecord) -> None:
        """Count one call that has ended."""
        if not self._are_read:
            return
        app = self._apps.value(call.app)
        self._calls.add(1, call.model, app, call.outcome.name)
        if call.retries:
            self._retries.add(call.retries, call.model)
        self._count_tokens(call)
        if call.service:
            self._service.add(call.service, call.tier or NO_TIER, app)
        self._time(call)

    def interaction(self, interaction: InteractionRecord) -> None:
        """Count one interaction that has closed."""
        self._interactions.add(1, self._apps.value(interaction.app), interaction.reason)

    def _count_tokens(self, call: CallRecord) -> None:
        if not call.scheduled:
            return
        self._tokens.add(call.prompt_tokens, call.model, "input")
        self._tokens.add(call.cached_tokens, call.model, "cached")
        self._tokens.add(call.output_tokens, call.model, "output")
        if call.outcome is not Outcome.COMPLETED:
            computed = call.prompt_tokens - call.cached_tokens + call.output_tokens
            self._wasted.add(computed, call.outcome.name)

    def _time(self, call: CallRecord) -> None:
        attributes = {
            "gen_ai.operation.name": call.operation,
            "gen_ai.provider.name": "fairlead",
            "gen_ai.request.model": call.model,
        }
        context = _exemplar(call)
        if call.prediction_error is not None:
            direction = "too_long" if call.prediction_error > 0 else "too_short"
            told = {**attributes, "direction": direction}
            self._prediction.record(abs(call.prediction_error), told, context)  # a histogram holds no negative numbers
        if call.outcome is not Outcome.COMPLETED:
            self._duration.record(call.seconds, {**attributes, "error.type": call.outcome.name}, context)
            return
        self._duration.record(call.seconds, attributes, context)
        self._first.record(max(0.0, (call.first_token - call.received) / 1e9), attributes, context)
        if call.output_tokens > 1:
            decoding = max(0.0, (call.finished - call.first_token) / 1e9)
            self._each.record(decoding / (call.output_tokens - 1), attributes, context)
        for phase in phases(call):
            self._phases.record((phase.end - phase.start) / 1e9, {"phase": phase.name}, context)


def observe_interactions(meter: Meter, accounting: Accounting) -> None:
    """Show results of interactions. The label app has the names in keys and profiles only, so they are bounded."""

    def judged(_: CallbackOptions) -> Iterable[Observation]:
        for app, account in list(accounting.apps.items()):  # a copy: the exporter's thread may run this
            for result in ("served", "throttled", "broken", "invalid", "cancelled", "refused"):
                yield Observation(getattr(account, result), {"app": app, "result": result})

    def wasted() -> dict[str, float]:
        return {app: account.wasted_tokens for app, account in list(accounting.apps.items())}

    meter.create_observable_counter(
        "fairlead.interactions.judged",
        [judged],
        description="Interactions that are over, by app and what became of them; and calls refused",
    )
    observe_by(
        meter.create_observable_counter,
        "fairlead.interactions.tokens.wasted",
        "app",
        wasted,
        "Tokens computed for interactions that a limit or a failure cut short, by app",
    )


def observe_placements(meter: Meter, placements: Mapping[PlacementReason, int]) -> None:
    """Show placements of requests."""

    def counts(_: CallbackOptions) -> Iterable[Observation]:
        for reason, count in placements.items():
            yield Observation(count, {"chosen_by": str(CHOOSERS[reason]), "reason": str(reason)})

    meter.create_observable_counter(
        "fairlead.placements",
        [counts],
        description="Attempts to place requests, by who chose the worker (scheduler, gateway, nobody) and why",
    )


def observe_states(
    meter: Meter, open_calls: Callable[[], int], members: Callable[[], int], stored_bytes: Callable[[], int]
) -> None:
    """Show the present state."""
    gauge = meter.create_observable_gauge
    observe(gauge, "fairlead.calls.open", open_calls, "Calls in progress at this gateway")
    observe(gauge, "fairlead.gateway.workers", members, "Workers that this gateway knows")
    observe(gauge, "fairlead.responses.stored.bytes", stored_bytes, "Bytes of stored responses")


def _exemplar(call: CallRecord) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(call_context(call)))
