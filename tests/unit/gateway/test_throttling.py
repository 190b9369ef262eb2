"""Throttled calls say when to come back; interactions in progress are never refused."""

from typing import Any

import grpc
import pytest

from fairlead.errors import ThrottledMemory, ThrottledUser
from fairlead.outcomes import Outcome
from fairlead.rpc.status import from_call
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import Stack, eventually


def request_for(max_tokens: int, **interaction: Any) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="hello"),
        sampling=common_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True),
    )
    if interaction:
        request.interaction.CopyFrom(inference_pb2.Interaction(**interaction))
    return request


def refused(stub: inference_pb2_grpc.InferenceStub, request: inference_pb2.GenerateRequest) -> ThrottledUser:
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(request, timeout=60))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = from_call(caught.value)
    assert isinstance(error, ThrottledUser)
    return error


def test_a_throttled_call_says_which_limit_and_when_to_retry(stack: Stack) -> None:
    stack.worker("a")
    with grpc.insecure_channel(stack.gateway(throttle="rpm:2").address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        def call() -> ThrottledUser | None:
            try:
                list(stub.Generate(request_for(1), timeout=60))
            except grpc.RpcError as error:
                refusal = from_call(error)
                assert isinstance(refusal, ThrottledUser)
                return refusal
            return None

        # A minute may turn between two calls, so that one more is let through.
        refusal = next(error for error in (call() for _ in range(5)) if error)
        assert "user_per_minute=2" in refusal.message
        assert 0 < refusal.retry_after <= 60


def test_calls_that_are_refused_at_the_door_count_towards_their_user(stack: Stack) -> None:
    stack.worker("a")
    bad = inference_pb2.GenerateRequest(prompt=common_pb2.Prompt(text=""))
    with grpc.insecure_channel(stack.gateway(throttle="rpm:4").address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        def outcome_of(request: inference_pb2.GenerateRequest) -> Outcome:
            try:
                return Outcome(list(stub.Generate(request, timeout=60))[-1].finished.outcome)
            except grpc.RpcError as error:
                return from_call(error).outcome

        # A minute may turn once; good calls alone would stay within the limit.
        rounds = [[outcome_of(request) for request in (bad, bad, bad, bad, request_for(1))] for _ in range(3)]
        assert all(outcomes[:4] == [Outcome.REJECTED_INVALID] * 4 for outcomes in rounds)
        assert Outcome.THROTTLED_USER in [outcomes[4] for outcomes in rounds]


def test_under_overload_only_interactions_in_progress_go_on(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.02", max_running=1)
    gateway = stack.gateway(throttle="oit:1")
    with grpc.insecure_channel(gateway.address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        opened = list(stub.Generate(request_for(1, id="journey"), timeout=60))
        token = opened[0].accepted.interaction_token
        assert token
        with pytest.raises(grpc.RpcError) as too_long:
            list(stub.Generate(request_for(1_000_000, id="never begun"), timeout=60))
        assert from_call(too_long.value).outcome is Outcome.REJECTED_TOO_LONG
        queued = [stub.Generate(request_for(2000), timeout=120) for _ in range(6)]
        eventually(lambda: any(line["models"] for line in gateway.logged("overload changed")), "overload")
        eventually(lambda: stack.requests() == 6, "all wait or run")
        error = refused(stub, request_for(1))
        assert "user_per_minute=1" in error.message
        refused(stub, request_for(1, id="journey of another", stage=1, token=token))
        refused(stub, request_for(1, id="never begun", stage=1))
        protected = stub.Generate(request_for(1, id="journey", stage=1, token=token), timeout=120)
        eventually(lambda: stack.requests() == 7, "the protected call is let in")
        for call in queued:
            call.cancel()
        responses = list(protected)
        assert responses[-1].finished.outcome == Outcome.COMPLETED
        assert responses[0].accepted.interaction_token != token


def test_under_overload_a_new_interaction_waits_for_memory_that_those_in_progress_hold(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.01", max_running=1, kv_tokens=512)
    gateway = stack.gateway(throttle="oit:1000")
    with grpc.insecure_channel(gateway.address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        opened = list(stub.Generate(request_for(300, id="journey"), timeout=60))
        token = opened[0].accepted.interaction_token
        queued = [stub.Generate(request_for(400), timeout=120) for _ in range(6)]
        goes_on = stub.Generate(request_for(1, id="journey", stage=1, token=token), timeout=120)
        eventually(lambda: any(line["models"] for line in gateway.logged("overload changed")), "overload")
        with pytest.raises(grpc.RpcError) as no_room:
            list(stub.Generate(request_for(1, id="another journey"), timeout=60))
        error = from_call(no_room.value)
        assert isinstance(error, ThrottledMemory)
        assert "memory" in error.message
        assert error.retry_after > 0
        for call in queued:
            call.cancel()
        assert list(goes_on)[-1].finished.outcome == Outcome.COMPLETED


@pytest.mark.parametrize("bound", [{"max_streams_per_client": 2}, {"max_streams": 16}], ids=["per client", "in all"])
def test_no_bound_on_open_calls_cuts_an_interaction(stack: Stack, bound: dict[str, int]) -> None:
    stack.worker("a", engine="fake:0.01", max_running=32)
    with grpc.insecure_channel(stack.gateway(throttle="oit:1000", **bound).address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        opened = list(stub.Generate(request_for(1, id="journey"), timeout=60))
        calls = [stub.Generate(request_for(1000), timeout=60) for _ in range(16)]
        refused = eventually(lambda: next((call for call in calls if call.done()), None), "no room for all of them")
        assert from_call(refused).outcome in (Outcome.REJECTED_CLIENT_LIMIT, Outcome.REJECTED_QUEUE_FULL)
        token = opened[0].accepted.interaction_token
        responses = list(stub.Generate(request_for(1, id="journey", stage=1, token=token), timeout=60))
        assert responses[-1].finished.outcome == Outcome.COMPLETED
        for call in calls:
            call.cancel()
