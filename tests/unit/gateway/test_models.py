"""Workers that serve several models, as a base and its adapters, beside workers that serve one of them."""

import itertools
import subprocess
import sys

import grpc
import pytest

from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import SECRET, Stack, eventually

STEP = 0.01
TOKENS = 60


def request_for(model: str, text: str = "Tell me", max_tokens: int = TOKENS) -> inference_pb2.GenerateRequest:
    sampling = common_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return inference_pb2.GenerateRequest(model=model, prompt=common_pb2.Prompt(text=text), sampling=sampling)


def text_of(responses: list[inference_pb2.GenerateResponse]) -> str:
    return "".join(response.chunk.text for response in responses)


def served(stub: inference_pb2_grpc.InferenceStub) -> dict[str, int]:
    """Each model's workers."""
    models = stub.ListModels(inference_pb2.ListModelsRequest(), wait_for_ready=True).models
    return {model.name: model.workers for model in models}


def test_each_models_calls_are_served_and_outlive_the_worker_that_serves_both(stack: Stack) -> None:
    stack.worker("both", model="base,adapter", engine=f"fake:{STEP}")
    stack.worker("one", model="adapter", engine=f"fake:{STEP}")
    gateway = stack.gateway(throttle="none")
    with grpc.insecure_channel(gateway.address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        assert served(stub) == {"adapter": 2, "base": 1}
        texts = {model: text_of(list(stub.Generate(request_for(model), timeout=60))) for model in ("base", "adapter")}
        assert texts["base"] != texts["adapter"]
        status = subprocess.run(
            [sys.executable, "-m", "cli", "status", "--scheduler", stack.scheduler.address, "--secret", SECRET],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert [line.split()[:2] for line in status.stdout.splitlines()[2:4]] == [
            ["both", "base,adapter"],
            ["one", "adapter"],
        ], status.stderr

        # Together: a call of the base, and calls of the adapter at both workers.
        lost = stub.Generate(request_for("base", max_tokens=4000), timeout=60)  # runs longer than the others need
        assert next(lost).accepted.worker == "both"
        calls = [stub.Generate(request_for("adapter"), timeout=60) for _ in range(4)]
        begun = [list(itertools.islice(call, 3)) for call in calls]
        assert {responses[0].accepted.worker for responses in begun} == {"both", "one"}
        stack.workers["both"].kill()
        assert [text_of(first + list(call)) for first, call in zip(begun, calls, strict=True)] == [texts["adapter"]] * 4
        # The gateway may have heard of the worker's end, or not yet.
        with pytest.raises(grpc.RpcError, match=r"(no live worker serves|the only worker of) model 'base'"):
            list(lost)
        eventually(lambda: served(stub) == {"adapter": 1}, "the gateway knows that nobody serves the base")
        assert text_of(list(stub.Generate(request_for("adapter"), timeout=60))) == texts["adapter"]
        with pytest.raises(grpc.RpcError, match="unknown model 'base'; models served: adapter"):
            list(stub.Generate(request_for("base"), timeout=60))


def test_models_share_no_prefix(stack: Stack) -> None:
    stack.worker("both", model="base,adapter")
    with grpc.insecure_channel(stack.gateway(throttle="none").address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        cached = [
            next(stub.Generate(request_for(model, "x" * 100), timeout=60)).accepted.cached_tokens
            for model in ("base", "adapter", "base", "adapter")
        ]
    assert cached == [0, 0, 96, 96]


def test_a_worker_that_came_back_with_another_model_is_left_for_one_that_serves_it(stack: Stack) -> None:
    """No scheduler tells the gateway, which still takes it for the worker that was there."""
    for name in ("a", "b"):
        stack.worker(name, model="base")
    with grpc.insecure_channel(stack.gateway(throttle="none").address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        text = text_of(list(stub.Generate(request_for("base"), timeout=60)))
        stack.scheduler.kill()
        address = stack.workers["a"].address
        stack.workers["a"].kill()
        other = {"engine": "fake", "model": "other", "scheduler": stack.workers["b"].address}
        assert stack.start("local_worker", listen=address, **other).address == address
        for _ in range(6):
            assert text_of(list(stub.Generate(request_for("base"), timeout=60))) == text
