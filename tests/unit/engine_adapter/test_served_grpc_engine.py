"""An adapter beside an engine that serves gRPC: real processes of everything."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from fairlead.v1 import common_pb2, inference_pb2
from tests import services
from tests.fakes.served_engine.process import EngineProcess
from tests.fakes.served_engine.tokens import output_after
from tests.services import Process, Stack, eventually
from tests.system.faults.load import caller, output_of

Responses = list[inference_pb2.GenerateResponse]
MODEL = "m"


class ServedGrpc:
    """An engine with an adapter beside it; a scheduler and a gateway."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.engine = EngineProcess(
            stack.directory / "engine.log", events=False, grpc=1, model=MODEL, step_seconds=0.004
        )
        stack.adapter("adapter", engine=f"grpc://{self.engine.address}", token_budget=64)
        self.gateway = stack.gateway(throttle="none", cache_scope="deployment")

    def call(self, prompt: common_pb2.Prompt, gateway: Process | None = None, **sampling: Any) -> Responses:
        params = common_pb2.SamplingParams(**{"max_tokens": 5, "ignore_eos": True, **sampling})
        request = inference_pb2.GenerateRequest(model=MODEL, prompt=prompt, sampling=params)
        with caller((gateway or self.gateway).address) as stub:
            return list(stub.Generate(request, timeout=services.DEADLINE))

    def close(self) -> None:
        self.engine.kill()
        self.stack.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGrpc]:
    served = ServedGrpc(Stack(tmp_path_factory.mktemp("served")))
    yield served
    served.close()


def test_texts_chats_and_cached_prefixes(served: ServedGrpc) -> None:
    text = "A prefix of several blocks, of which the engine tells when it has computed them."
    first = served.call(common_pb2.Prompt(text=text))
    assert output_of(first) == output_after(text, 5)
    cached = (len(text) - 1) // 16 * 16

    def hits() -> bool:
        return served.call(common_pb2.Prompt(text=text))[-1].finished.usage.cached_tokens == cached

    eventually(hits, "the prefix is found")
    hello = common_pb2.ChatMessage(role="user", content="hello")
    tool = common_pb2.Tool(name="weather", description="Tell it.", parameters="{}")
    chat = common_pb2.Chat(messages=[hello])
    assert output_of(served.call(common_pb2.Prompt(chat=chat))) == output_after("user: hello\nassistant: ", 5)
    required = common_pb2.Chat(messages=[hello], tools=[tool], tool_choice=common_pb2.ToolChoice(required=True))
    with pytest.raises(grpc.RpcError, match="calls cannot be promised"):
        served.call(common_pb2.Prompt(chat=required))


def test_parameters_that_the_engine_lacks_are_refused_by_name(served: ServedGrpc) -> None:
    apart = served.stack.gateway(throttle="none")
    refusals: list[tuple[str, Process, dict[str, Any]]] = [
        ("cache_scope: the engine, vllm 0.32.0 over gRPC, cannot", apart, {}),
        ("sampling.prompt_logprobs: is not supported", served.gateway, {"prompt_logprobs": 1}),
    ]
    for message, gateway, sampling in refusals:
        with pytest.raises(grpc.RpcError) as refused:
            served.call(common_pb2.Prompt(text="A story"), gateway, **sampling)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert message in refused.value.details()


def test_an_engine_that_dies_leaves_the_fleet_and_comes_back(served: ServedGrpc) -> None:
    request = inference_pb2.GenerateRequest(
        model=MODEL,
        prompt=common_pb2.Prompt(text="A long story"),
        sampling=common_pb2.SamplingParams(max_tokens=300, ignore_eos=True),
    )
    with caller(served.gateway.address) as stub:
        responses = stub.Generate(request, timeout=services.DEADLINE)
        next(responses)
        served.engine.kill()
        with pytest.raises(grpc.RpcError) as lost:
            list(responses)
    assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
    served.engine.start()

    def serves() -> bool:
        try:
            return output_of(served.call(common_pb2.Prompt(text="Again")))[1] == output_after("Again", 5)[1]
        except grpc.RpcError:
            return False

    eventually(serves, "the engine is back")
