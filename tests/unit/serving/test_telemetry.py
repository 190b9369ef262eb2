from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from fairlead.outcomes import FinishReason, Outcome
from serving.sampling_params import SamplingParams
from serving.telemetry.records import CallRecord, InteractionRecord
from serving.telemetry.traces import MOST_CALLS, TailSampler, Traces, otlp_processor
from tests.otlp import Receiver

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
PHASES = ["admit", "select", "queue", "prefill", "decode"]
CALL = CallRecord(
    client="acme/ann", app="agent", interaction="i1", stage=0, request_id="r1", model="m", worker="w1", policy="dlpm",
    worker_instance="w1-1", scheduler="s1-1",
    sampling=SamplingParams(max_tokens=7, temperature=0.5), service=11.0, tier="gold", retries=1, matched_tokens=16,
    outcome=Outcome.COMPLETED, finish_reason=FinishReason.STOP, prompt_tokens=9, cached_tokens=4, output_tokens=3,
    received=NOW, admitted=NOW + 1, dispatched=NOW + 30, queued=NOW + 40, scheduled=NOW + 500, first_token=NOW + 900,
    finished=NOW + 2000,
)  # fmt: skip

ALL = TailSampler(ratio=1.0)


def export(endpoint: str, *records: CallRecord | InteractionRecord, keep: TailSampler = ALL) -> Traces:
    traces = Traces(otlp_processor({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}), keep)
    for record in records:
        if isinstance(record, CallRecord):
            traces.call(record)
        else:
            traces.interaction(record)
    traces.shutdown()
    return traces


def test_two_calls_and_their_interaction_are_one_trace(receiver: Receiver, endpoint: str) -> None:
    root = InteractionRecord(
        client="acme/ann", app="agent", interaction="i1", calls=2, reason="end", started=NOW, ended=NOW + 9000
    )
    export(endpoint, CALL)  # by one gateway
    export(endpoint, replace(CALL, request_id="r2", stage=1), root)  # by another
    [interaction] = receiver.named("interaction")
    calls = receiver.named("chat m")
    assert len(calls) == 2
    assert {span.trace_id for _, span in receiver.spans} == {interaction.trace_id}
    assert {call.parent_span_id for call in calls} == {interaction.span_id}
    assert not interaction.parent_span_id
    assert len({span.span_id for _, span in receiver.spans}) == len(receiver.spans) == 13


def test_phases_tile_the_call_and_name_their_service(receiver: Receiver, endpoint: str) -> None:
    export(endpoint, CALL)
    [call] = receiver.named("chat m")
    children = receiver.below(call)
    assert [span.name for _, span in children] == PHASES
    assert [service for service, _ in children] == [
        "fairlead-gateway", "fairlead-global-scheduler", *["fairlead-local-worker"] * 3,
    ]  # fmt: skip
    spans = [span for _, span in children]
    assert [span.end_time_unix_nano - span.start_time_unix_nano for span in spans] == [1, 29, 470, 400, 1100]
    assert sum(span.end_time_unix_nano - span.start_time_unix_nano for span in spans) == 2000
    assert call.kind == Span.SPAN_KIND_SERVER
    attributes = {item.key: item.value for item in call.attributes}
    assert attributes["gen_ai.conversation.id"].string_value == "i1"
    assert attributes["gen_ai.usage.cache_read.input_tokens"].int_value == 4
    assert attributes["gen_ai.request.max_tokens"].int_value == 7
    assert attributes["gen_ai.request.temperature"].double_value == 0.5
    assert attributes["fairlead.client"].string_value == "acme/ann"
    assert attributes["fairlead.app"].string_value == "agent"
    assert attributes["fairlead.stage"].int_value == 0
    assert attributes["fairlead.tier"].string_value == "gold"
    assert attributes["fairlead.service"].double_value == 11.0
    assert attributes["fairlead.retries"].int_value == 1
    assert attributes["fairlead.outcome"].string_value == "COMPLETED"
    below = {span.name: {item.key: item.value for item in span.attributes} for span in spans}
    assert below["select"]["fairlead.matched_tokens"].int_value == 16
    assert below["queue"]["fairlead.policy"].string_value == "dlpm"
    assert {below[name]["fairlead.worker"].string_value for name in ("queue", "prefill", "decode")} == {"w1"}


def test_each_phase_is_of_the_process_that_it_was_spent_in(receiver: Receiver, endpoint: str) -> None:
    export(endpoint, CALL)
    [call] = receiver.named("chat m")
    own = receiver.instance(call)
    assert own not in ("", "w1-1", "s1-1")
    instances = [receiver.instance(span) for _, span in receiver.below(call)]
    assert instances == [own, "s1-1", "w1-1", "w1-1", "w1-1"]


def test_a_worker_that_the_gateway_chose_is_its_own_choice_in_the_trace(receiver: Receiver, endpoint: str) -> None:
    export(endpoint, replace(CALL, scheduler=""))
    [call] = receiver.named("chat m")
    assert [service for service, _ in receiver.below(call)][:2] == ["fairlead-gateway"] * 2


def test_a_call_is_named_by_its_operation_and_the_model_if_there_is_one(receiver: Receiver, endpoint: str) -> None:
    text = replace(CALL, operation="text_completion", request_id="r2")
    export(endpoint, text, replace(text, model="", tier="", request_id="r3", outcome=Outcome.REJECTED_INVALID))
    for name in ("text_completion m", "text_completion"):
        [span] = receiver.named(name)
        attributes = {item.key: item.value.string_value for item in span.attributes}
        assert attributes["gen_ai.operation.name"] == "text_completion"
        assert ("gen_ai.request.model" in attributes, "fairlead.tier" in attributes) == (name.endswith(" m"),) * 2


def test_an_interaction_that_a_late_call_opens_again_keeps_one_root(receiver: Receiver, endpoint: str) -> None:
    root = InteractionRecord(
        client="acme/ann", app="agent", interaction="i1", calls=1, reason="end", started=NOW, ended=NOW + 3000
    )
    late = replace(CALL, request_id="r2", received=NOW + 5000, finished=NOW + 9000)
    export(endpoint, CALL, root, late, replace(root, reason="idle", started=NOW + 5000, ended=NOW + 9000))
    [interaction] = receiver.named("interaction")
    assert {call.parent_span_id for call in receiver.named("chat m")} == {interaction.span_id}


@pytest.mark.parametrize("reached", range(1, 6))
def test_a_call_that_fails_early_ends_in_the_phase_it_reached(receiver: Receiver, endpoint: str, reached: int) -> None:
    times = ["admitted", "dispatched", "scheduled", "first_token"]
    never: dict[str, Any] = dict.fromkeys(times[reached - 1 :], 0)
    failed = replace(CALL, outcome=Outcome.CANCELLED, finish_reason=None, **never)
    export(endpoint, failed)
    [call] = receiver.named("chat m")
    spans = [span for _, span in receiver.below(call)]
    assert [span.name for span in spans] == PHASES[:reached]
    assert spans[-1].end_time_unix_nano == call.end_time_unix_nano
    assert call.status.code == Status.STATUS_CODE_ERROR
    assert call.status.message == "CANCELLED"


def test_another_machines_clock_cannot_break_the_tiling(receiver: Receiver, endpoint: str) -> None:
    export(endpoint, replace(CALL, scheduled=NOW - SECOND, first_token=NOW + SECOND))
    [call] = receiver.named("chat m")
    spans = [span for _, span in receiver.below(call)]
    durations = {span.name: span.end_time_unix_nano - span.start_time_unix_nano for span in spans}
    assert durations == {"admit": 1, "select": 29, "queue": 0, "prefill": 1970, "decode": 0}


def test_the_callers_trace_is_continued(receiver: Receiver, endpoint: str) -> None:
    export(endpoint, replace(CALL, traceparent=f"00-{'ab' * 16}-{'cd' * 8}-01"))
    [call] = receiver.named("chat m")
    assert call.trace_id == bytes.fromhex("ab" * 16)
    assert call.parent_span_id == bytes.fromhex("cd" * 8)


@pytest.mark.parametrize(
    "wrong",
    [
        "nonsense",
        f"00-{'0' * 32}-{'cd' * 8}-01",
        f"ff-{'ab' * 16}-{'cd' * 8}-01",
        f"01-{'ab' * 16}-{'cd' * 8}-01-{'x' * 7000}",
    ],
)
def test_a_wrong_traceparent_counts_as_none(receiver: Receiver, endpoint: str, wrong: str) -> None:
    export(endpoint, replace(CALL, traceparent=wrong), CALL)
    first, second = receiver.named("chat m")
    assert first.trace_id == second.trace_id


def test_calls_without_an_interaction_have_a_trace_each(receiver: Receiver, endpoint: str) -> None:
    export(endpoint, replace(CALL, interaction=""), replace(CALL, interaction="", request_id="r2"))
    first, second = receiver.named("chat m")
    assert first.trace_id != second.trace_id
    assert not first.parent_span_id


def test_nothing_is_exported_unless_configured(
    receiver: Receiver, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)  # the SDK would find the receiver
    for environ in ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_SDK_DISABLED": "true"}):
        traces = Traces(otlp_processor(environ))
        traces.call(CALL)
        traces.shutdown()
        assert traces.find("i1") == [CALL], "it is remembered all the same"
    assert receiver.spans == []


NEVER = TailSampler(ratio=0.0, slow_seconds=1.0)


def test_of_ordinary_interactions_the_ratio_is_exported(receiver: Receiver, endpoint: str) -> None:
    calls = [replace(CALL, interaction=f"i{number}") for number in range(400)]
    export(endpoint, *calls, keep=TailSampler(ratio=0.25))
    chosen = {span.trace_id for span in receiver.named("chat m")}
    assert 50 < len(chosen) < 150, "ids are hashes: 100 and a little more or less"
    again = export(endpoint, *calls, keep=TailSampler(ratio=0.25))
    assert again.find("i399"), "what is not exported is remembered"
    assert {span.trace_id for span in receiver.named("chat m")} == chosen, "every gateway chooses the same"


@pytest.mark.parametrize(
    "remarkable",
    [
        {"outcome": Outcome.THROTTLED_USER, "finish_reason": None},
        {"outcome": Outcome.INTERNAL, "finish_reason": None},
        {"finished": NOW + 2 * SECOND},
    ],
    ids=["throttled", "failed", "slow"],
)
def test_a_remarkable_call_keeps_its_whole_interaction(
    receiver: Receiver, endpoint: str, remarkable: dict[str, Any]
) -> None:
    root = InteractionRecord(
        client="acme/ann", app="agent", interaction="i1", calls=3, reason="end", started=NOW, ended=NOW + 9000
    )
    other = replace(CALL, interaction="i2", request_id="r9")
    kept = (CALL, replace(CALL, request_id="r2", stage=1, **remarkable), replace(CALL, request_id="r3", stage=2))
    export(endpoint, other, *kept, root, keep=NEVER)
    calls = receiver.named("chat m")
    ids = {item.value.string_value for span in calls for item in span.attributes if item.key == "gen_ai.response.id"}
    assert ids == {"r1", "r2", "r3"}, "also what came before it, and nothing of other interactions"
    assert len(calls) == 3, "each once"
    assert len(receiver.named("interaction")) == 1


def test_nobody_without_a_key_can_make_us_export(receiver: Receiver, endpoint: str) -> None:
    nobodys = replace(CALL, client="", outcome=Outcome.UNAUTHENTICATED, finish_reason=None, interaction="")
    export(endpoint, nobodys)
    assert receiver.spans == []


def test_nobody_without_a_key_can_make_us_forget() -> None:
    traces = Traces(most=2)
    traces.call(CALL)
    for number in range(3):
        traces.call(replace(CALL, client="", interaction="", request_id=f"r{number}"))
    assert traces.find("i1") == [CALL]
    assert traces.find("r2") == []


@pytest.mark.parametrize(("flags", "exported"), [("01", 1), ("00", 0)])
def test_the_callers_decision_stands(receiver: Receiver, endpoint: str, flags: str, exported: int) -> None:
    above = f"00-{'ab' * 16}-{'cd' * 8}-{flags}"
    for ratio in (0.0, 1.0):
        receiver.spans.clear()
        export(endpoint, replace(CALL, traceparent=above), keep=TailSampler(ratio=ratio))
        assert len(receiver.named("chat m")) == exported


def test_the_newest_traces_are_remembered() -> None:
    traces = Traces(most=2)
    for number in (1, 2, 1, 3):
        traces.call(replace(CALL, interaction=f"i{number}", request_id=f"r{number}"))
    assert [call.request_id for call in traces.find("i1")] == ["r1", "r1"]
    assert traces.find("i2") == []
    assert [call.interaction for call in traces.find("r3")] == ["i3"]


def test_of_an_endless_interaction_the_newest_calls_are_remembered() -> None:
    traces = Traces()
    for number in range(MOST_CALLS + 5):
        traces.call(replace(CALL, request_id=f"r{number}"))
    assert [call.request_id for call in traces.find("i1")] == [f"r{number}" for number in range(5, MOST_CALLS + 5)]
