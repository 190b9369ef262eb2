"""What callers notice when things break: nothing, or one clear status."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from fairlead.outcomes import FinishReason, Outcome
from fairlead.token_ids import unpack_ids
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import Process, Stack, eventually

STEP = 0.02  # an output of 100 tokens takes 2 s, in which a test has to come to its fault


def request_for(text: str, max_tokens: int = 100) -> inference_pb2.GenerateRequest:
    sampling = common_pb2.SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=3, ignore_eos=True)
    return inference_pb2.GenerateRequest(prompt=common_pb2.Prompt(text=text), sampling=sampling)


@pytest.fixture
def gateway(stack: Stack) -> Process:
    """A gateway before two slow workers."""
    for name in ("a", "b"):
        stack.worker(name, engine=f"fake:{STEP}")
    return stack.gateway(throttle="none")


@pytest.fixture
def stub(gateway: Process) -> Iterator[inference_pb2_grpc.InferenceStub]:
    with grpc.insecure_channel(gateway.address) as channel:
        yield inference_pb2_grpc.InferenceStub(channel)


def output_of(responses: list[inference_pb2.GenerateResponse]) -> tuple[str, list[int]]:
    text = "".join(response.chunk.text for response in responses)
    return text, unpack_ids(b"".join(response.chunk.token_ids.packed for response in responses))


def outcomes(gateway: Process) -> list[str]:
    return [line["outcome"] for line in gateway.logged("call ended")]


def cost_of(ended: dict[str, Any]) -> float:
    computed: int = ended["prompt_tokens"] - ended["cached_tokens"] + 2 * ended["output_tokens"]
    return float(computed)


def test_a_worker_killed_in_mid_stream_is_not_noticed(
    stack: Stack, gateway: Process, stub: inference_pb2_grpc.InferenceStub
) -> None:
    undisturbed = list(stub.Generate(request_for("Tell me"), timeout=60))
    call = stub.Generate(request_for("Tell me"), timeout=60)
    begun = list(itertools.islice(call, 6))
    stack.workers[begun[0].accepted.worker].kill()
    responses = begun + list(call)
    assert output_of(responses) == output_of(undisturbed)
    assert len(output_of(responses)[1]) == 100
    kinds = [response.WhichOneof("event") for response in responses]
    assert kinds.count("accepted") == kinds.count("finished") == 1
    finished = responses[-1].finished
    assert finished.usage.prompt_tokens == undisturbed[-1].finished.usage.prompt_tokens
    assert finished.usage.output_tokens == 100
    ended = gateway.logged("call ended")[-1]
    assert (ended["outcome"], ended["attempts"]) == ("COMPLETED", 2)
    assert ended["worker"] != begun[0].accepted.worker
    assert ended["service"] == cost_of(ended), "what is computed again is not charged again"


def test_a_constrained_output_obeys_at_the_next_worker_as_it_would_have_at_the_first(
    stack: Stack, gateway: Process, stub: inference_pb2_grpc.InferenceStub
) -> None:
    request = request_for("Tell me", max_tokens=200)
    request.sampling.ignore_eos = False
    request.sampling.regex = "([a-z]{3} ?){30}!"
    undisturbed = list(stub.Generate(request, timeout=60))
    call = stub.Generate(request, timeout=60)
    begun = list(itertools.islice(call, 6))
    stack.workers[begun[0].accepted.worker].kill()
    responses = begun + list(call)
    assert output_of(responses) == output_of(undisturbed)
    assert re.fullmatch(request.sampling.regex, output_of(responses)[0])
    assert responses[-1].finished.finish_reason == FinishReason.STOP
    assert gateway.logged("call ended")[-1]["attempts"] == 2


def test_without_another_worker_the_call_is_unavailable(
    stack: Stack, gateway: Process, stub: inference_pb2_grpc.InferenceStub
) -> None:
    call = stub.Generate(request_for("Tell me"), timeout=60)
    next(call)
    for worker in stack.workers.values():
        worker.begin_kill()
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert outcomes(gateway) == [Outcome.UNAVAILABLE.name]


def test_the_scheduler_is_not_needed_to_go_on(
    stack: Stack, gateway: Process, stub: inference_pb2_grpc.InferenceStub
) -> None:
    call = stub.Generate(request_for("Tell me"), timeout=60)
    next(call)
    stack.scheduler.kill()
    assert list(call)[-1].finished.outcome == Outcome.COMPLETED
    eventually(lambda: gateway.logged("scheduler is away"), "the gateway notices")
    streams = [stub.Generate(request_for(f"Story {number}", 20), timeout=60) for number in range(4)]
    finished = [list(stream) for stream in streams]
    assert [responses[-1].finished.outcome for responses in finished] == [Outcome.COMPLETED] * 4
    assert {responses[0].accepted.worker for responses in finished} == {"a", "b"}


def test_a_cancelled_call_frees_its_worker(
    stack: Stack, gateway: Process, stub: inference_pb2_grpc.InferenceStub
) -> None:
    call = stub.Generate(request_for("Tell me", 4000), timeout=60)
    list(itertools.islice(call, 3))
    eventually(lambda: stack.requests() == 1, "the request runs")
    call.cancel()
    eventually(lambda: stack.requests() == 0, "the request is gone")
    eventually(lambda: outcomes(gateway) == [Outcome.CANCELLED.name], "the outcome is counted")
    [ended] = gateway.logged("call ended")
    assert ended["output_tokens"] > 0
    assert ended["service"] == cost_of(ended), "what was computed before is charged"


def test_a_caller_that_stops_reading_and_goes_away_frees_its_worker(stack: Stack, gateway: Process) -> None:
    with grpc.insecure_channel(gateway.address) as channel:
        call = inference_pb2_grpc.InferenceStub(channel).Generate(request_for("Tell me", 4000), timeout=60)
        next(call)
        eventually(lambda: stack.requests() == 1, "the request runs")
    eventually(lambda: stack.requests() == 0, "the request is gone")
    eventually(lambda: outcomes(gateway) == [Outcome.CANCELLED.name], "the outcome is counted")


def test_a_caller_that_stays_and_reads_nothing_is_given_up(stack: Stack) -> None:
    stack.worker("a")
    gateway = stack.gateway(throttle="none", max_streams_per_client=1, reader_seconds=0.5)
    request = request_for("Tell me", 8000)
    request.streaming = inference_pb2.STREAMING_EACH_TOKEN
    small = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)]  # else there may be megabytes under way
    with grpc.insecure_channel(gateway.address, small) as idle, grpc.insecure_channel(gateway.address) as channel:
        call = inference_pb2_grpc.InferenceStub(idle).Generate(request)
        next(call)
        eventually(lambda: outcomes(gateway) == [Outcome.CANCELLED.name], "it is given up")
        responses = list(inference_pb2_grpc.InferenceStub(channel).Generate(request_for("Me too"), timeout=60))
        assert responses[-1].finished.outcome == Outcome.COMPLETED, "its place is free"
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() is grpc.StatusCode.CANCELLED
        assert "nothing was read for 0.5 s" in caught.value.details(), "should it wake, it is told"
    assert gateway.terminate() == 0


def test_a_deadline_ends_the_call_everywhere(
    stack: Stack, gateway: Process, stub: inference_pb2_grpc.InferenceStub
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(request_for("Tell me", 4000), timeout=2))
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(lambda: stack.requests() == 0, "the request is gone")
    eventually(lambda: outcomes(gateway) == [Outcome.DEADLINE_EXCEEDED.name], "the outcome is counted")


def test_sigterm_lets_streams_finish(gateway: Process, stub: inference_pb2_grpc.InferenceStub) -> None:
    call: Iterator[inference_pb2.GenerateResponse] = stub.Generate(request_for("Tell me"), timeout=60)
    next(call)
    status = gateway.terminate()
    assert list(call)[-1].finished.outcome == Outcome.COMPLETED
    assert status == 0
    assert outcomes(gateway) == [Outcome.COMPLETED.name]
