"""One trace per interaction, from the services' real times, at a real OTLP receiver."""

import asyncio
from itertools import pairwise

import grpc
import pytest

from fairlead import Client
from fairlead.errors import InvalidRequest, TooLong
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from gateway.admission import traceparent
from tests.otlp import Receiver
from tests.services import Stack


async def interact(address: str) -> None:
    async with Client(address, user="ann", app="agent") as client:
        async with client.interaction() as interaction:
            await interaction.generate("plan", max_tokens=4, ignore_eos=True)
            await interaction.generate("act", max_tokens=4, ignore_eos=True)
        with pytest.raises(InvalidRequest):
            await client.generate("bad", temperature=-1.0)


def test_an_interactions_calls_are_one_trace_across_services(
    stack: Stack, receiver: Receiver, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    stack.worker("w0", engine="fake:0.01", model="tiny")
    gateway = stack.gateway()
    asyncio.run(interact(gateway.address))
    assert gateway.terminate() == 0, "and what was recorded has been exported"
    assert [line for line in gateway.lines() if line["level"] == "warning"] == [], "an orderly end is no trouble"
    [root] = receiver.named("interaction")
    calls = receiver.below(root)
    assert root.start_time_unix_nano == calls[0][1].start_time_unix_nano, "it begins with its first call"
    assert [(service, span.name) for service, span in calls] == [("fairlead-gateway", "text_completion tiny")] * 2
    for _, call in calls:
        phases = receiver.below(call)
        assert [(service.removeprefix("fairlead-"), span.name) for service, span in phases] == [
            ("gateway", "admit"),
            ("global-scheduler", "select"),
            ("local-worker", "queue"),
            ("local-worker", "prefill"),
            ("local-worker", "decode"),
        ]
        instances = [receiver.instance(span) for _, span in phases]
        assert len(set(instances)) == 3, "gateway, scheduler, worker"
        assert instances[0] == receiver.instance(call)
        assert {span.trace_id for _, span in phases} == {root.trace_id} == {call.trace_id}
        for (_, before), (_, after) in pairwise(phases):
            assert before.end_time_unix_nano == after.start_time_unix_nano
        assert phases[0][1].start_time_unix_nano == call.start_time_unix_nano
        assert phases[-1][1].end_time_unix_nano == call.end_time_unix_nano
        decode = phases[-1][1]
        assert decode.end_time_unix_nano - decode.start_time_unix_nano >= 3 * 10_000_000, "three steps of 10 ms"
    [failed] = [
        span for _, span in receiver.spans if span.name.startswith("text_completion") and span.trace_id != root.trace_id
    ]
    outcomes = [a.value.string_value for a in failed.attributes if a.key == "fairlead.outcome"]
    assert outcomes == ["REJECTED_INVALID"]
    texts = {a.value.string_value for _, span in receiver.spans for a in span.attributes}
    assert not texts & {"plan", "act", "bad"}, "prompts never enter spans"


async def return_late(address: str) -> None:
    """A call with the id of an interaction that its caller has ended."""
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="plan"), interaction=inference_pb2.Interaction(id="job")
    )
    async with grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        request.interaction.end = True
        for _ in range(2):
            async for _ in stub.Generate(request, metadata=[("x-fairlead-user", "ann")]):
                pass


def test_a_call_after_an_interactions_end_joins_its_root(
    stack: Stack, receiver: Receiver, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    stack.worker("w0", model="tiny")
    gateway = stack.gateway()
    asyncio.run(return_late(gateway.address))
    assert gateway.terminate() == 0
    [root], calls = receiver.named("interaction"), receiver.named("text_completion tiny")
    assert [call.parent_span_id for call in calls] == [root.span_id] * 2


async def overreach(address: str) -> None:
    """A first call that is refused, one that opens the interaction, and one that is refused in it."""
    async with Client(address, user="ann", app="agent") as client, client.interaction() as interaction:
        with pytest.raises(TooLong):
            await interaction.generate("x" * 10_000)
        await interaction.generate("plan", max_tokens=4, ignore_eos=True)
        with pytest.raises(TooLong):
            await interaction.generate("x" * 10_000)


def test_a_refused_call_is_below_an_interaction_in_progress_or_stands_alone(
    stack: Stack, receiver: Receiver, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    stack.worker("w0", model="tiny")
    gateway = stack.gateway()
    asyncio.run(overreach(gateway.address))
    assert gateway.terminate() == 0
    [root], calls = receiver.named("interaction"), receiver.named("text_completion tiny")
    alone = [call for call in calls if not call.parent_span_id]
    assert [call.status.message for call in alone] == ["REJECTED_TOO_LONG"]
    assert [call.status.message for _, call in receiver.below(root)] == ["", "REJECTED_TOO_LONG"]
    assert len(calls) == 3
    assert alone[0].trace_id != root.trace_id


async def ask(address: str, calls: int) -> int:
    """How many of so many calls at once completed."""
    async with Client(address, user="ann") as client:
        done = await asyncio.gather(
            *(client.generate(f"call {number}", max_tokens=4, ignore_eos=True) for number in range(calls))
        )
    return len(done)


def test_the_end_of_a_gateway_loses_no_span(
    stack: Stack, receiver: Receiver, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    stack.worker("w0", model="tiny")
    gateway = stack.gateway(throttle="oit:10000")
    completed = asyncio.run(ask(gateway.address, 200))
    assert gateway.terminate() == 0
    assert len(receiver.named("text_completion tiny")) == completed == 200
    for name in ("admit", "select", "queue", "prefill", "decode"):
        assert len(receiver.named(name)) == 200


def test_without_sampling_what_went_wrong_is_exported_and_nothing_else(
    stack: Stack, receiver: Receiver, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    stack.worker("w0", model="tiny")
    gateway = stack.gateway()
    asyncio.run(interact(gateway.address))
    assert gateway.terminate() == 0
    [call] = [span for _, span in receiver.spans if span.name.startswith("text_completion")]
    assert call.status.message == "REJECTED_INVALID"
    assert not receiver.named("interaction")


def test_a_collector_that_is_away_changes_nothing(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    stack.worker("w0", model="tiny")
    gateway = stack.gateway()
    assert asyncio.run(ask(gateway.address, 50)) == 50
    assert gateway.terminate() == 0, "nor does it hold up the end"


def test_only_a_traceparent_that_stands_for_a_span_is_kept() -> None:
    above = f"00-{'ab' * 16}-{'cd' * 8}-01"
    assert traceparent(above) == above
    for wrong in ("j" * 7000, f"00-{'0' * 32}-{'cd' * 8}-01", above + "-" + "x" * 7000, ""):
        assert traceparent(wrong) == ""
