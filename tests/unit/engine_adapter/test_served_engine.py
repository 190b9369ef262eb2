"""Adapters beside engines that are not ours: real processes of everything, over gRPC, HTTP and ZeroMQ."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from fairlead.v1 import common_pb2, inference_pb2
from tests import services
from tests.fakes.served_engine.process import EngineProcess
from tests.fakes.served_engine.tokens import output_after
from tests.services import Stack, eventually
from tests.system.faults.load import caller, output_of, request_for
from tests.unit.gateway.http.http_client import CHAT, HELLO, HttpClient

pytest.importorskip("zmq", reason="the extra `adapter` is not installed")
MOST_RUNNING = 3
Responses = list[inference_pb2.GenerateResponse]


class Served:
    """Two engines, an adapter beside each, a scheduler and a gateway. Engine b loses every third of its KV events."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.engines = {
            name: EngineProcess(stack.directory / f"engine-{name}.log", step_seconds=0.004, drop=drop)
            for name, drop in (("a", 0), ("b", 3))
        }
        self.picker = stack.start("endpoint_picker", endpoints=",".join(each.address for each in self.engines.values()))
        for name in self.engines:
            self.start_adapter(name)
            # Between idle adapters a call goes to the one that joined first.
            eventually(partial(self.serves, name), f"{name} serves")
        self.gateway = stack.gateway(throttle="none")

    def start_adapter(self, name: str) -> None:
        engine = self.engines[name]
        self.stack.adapter(
            name,
            scheduler=f"{self.stack.addresses},{self.picker.address}",
            engine=engine.address,
            kv_events=f"{engine.events},{engine.replay}",
            max_running=MOST_RUNNING,
            token_budget=64,
        )

    def serves(self, name: str) -> bool:
        return name in self.serving()

    def serving(self) -> set[str]:
        """The adapters that are in the fleet and take requests."""
        members = self.stack.status().cluster.members
        return {member.worker for member in members if not member.load.draining}

    def call(self, text: str, tokens: int) -> Responses:
        with caller(self.gateway.address) as stub:
            return list(stub.Generate(request_for(text, tokens), timeout=services.DEADLINE))

    def close(self) -> None:
        for engine in self.engines.values():
            engine.kill()
        self.stack.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(Stack(tmp_path_factory.mktemp("served")))
    yield served
    served.close()


def test_outputs_are_those_of_the_engine(served: Served) -> None:
    for count in (1, 2, 40):
        responses = served.call("Once upon a time", count)
        assert output_of(responses) == output_after("Once upon a time", count)
    finished = responses[-1].finished
    assert (finished.usage.prompt_tokens, finished.usage.output_tokens) == (16, 40)
    assert finished.finish_reason == common_pb2.FINISH_REASON_LENGTH


def test_a_repeated_prompt_is_found_where_it_is_cached(served: Served) -> None:
    text = "A prefix of several blocks, of which the engine tells when it has computed them."
    first = served.call(text, 3)
    cached = (len(text) - 1) // 16 * 16
    eventually(lambda: served.call(text, 3)[-1].finished.usage.cached_tokens == cached, "the prefix is found")
    again = served.call(text, 3)
    assert output_of(again) == output_of(first)
    assert again[-1].finished.usage.service == len(text) - cached + 2 * 3


def test_adapters_attach_to_a_picker_by_the_addresses_at_which_it_knows_their_engines(served: Served) -> None:
    expected = {engine.address for engine in served.engines.values()}

    def attached() -> bool:
        return {each["endpoint"] for each in served.picker.logged("an adapter has attached")} == expected

    eventually(attached, "both adapters have attached")


def chat(**contents: str) -> common_pb2.Prompt:
    messages = [common_pb2.ChatMessage(role=role, content=content) for role, content in contents.items()]
    return common_pb2.Prompt(chat=common_pb2.Chat(messages=messages))


def test_chats_stop_strings_and_logprobs(served: Served) -> None:
    prompt = "system: be brief\nuser: hello\nassistant: "
    text, tokens = output_after(prompt, 20)
    stop = text[5:8]
    sampling = common_pb2.SamplingParams(max_tokens=20, ignore_eos=True, stop=[stop], logprobs=2)
    request = inference_pb2.GenerateRequest(prompt=chat(system="be brief", user="hello"), sampling=sampling)
    with caller(served.gateway.address) as stub:
        responses = list(stub.Generate(request, timeout=services.DEADLINE))
    finished = responses[-1].finished
    assert output_of(responses)[0] == text[: text.index(stop)]
    assert finished.finish_reason == common_pb2.FINISH_REASON_STOP
    assert finished.usage.prompt_tokens == len(prompt)
    reported = [logprobs for response in responses for logprobs in response.chunk.logprobs]
    assert [list(each.top_ids) for each in reported] == [[token, token + 1] for token in tokens[: len(reported)]]
    assert {each.logprob for each in reported} == {-0.5}


def test_errors_of_the_engine_are_errors_of_the_call(served: Served) -> None:
    for text, code in (("refuse this", "INVALID_ARGUMENT"), ("fail at this", "UNAVAILABLE")):
        with pytest.raises(grpc.RpcError) as raised:
            served.call(text, 3)
        assert raised.value.code().name == code, raised.value.details()
        assert "as you asked" in raised.value.details() or code == "UNAVAILABLE"
    request = inference_pb2.GenerateRequest(prompt=chat(tool="hello"))
    with caller(served.gateway.address) as stub, pytest.raises(grpc.RpcError) as raised:
        list(stub.Generate(request, timeout=services.DEADLINE))
    assert "no such role" in raised.value.details()
    eventually(lambda: served.serving() == {"a", "b"}, "both serve again")


def refused(served: Served, request: inference_pb2.GenerateRequest) -> grpc.RpcError:
    with caller(served.gateway.address) as stub, pytest.raises(grpc.RpcError) as raised:
        list(stub.Generate(request, timeout=services.DEADLINE))
    return raised.value


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        ({"json_object": True}, {"json_object": True}),
        ({"json_schema": '{"type": "integer"}'}, {"json": '{"type": "integer"}'}),
        ({"regex": "a+"}, {"regex": "a+"}),
        ({"choice": common_pb2.Choices(texts=["a", "b"])}, {"choice": ["a", "b"]}),
        ({"grammar": 'start: "a"'}, {"grammar": 'start: "a"'}),
    ],
)
def test_constraints_are_the_engines(served: Served, constraint: dict[str, Any], told: dict[str, Any]) -> None:
    sampling = common_pb2.SamplingParams(max_tokens=4, **constraint)
    error = refused(
        served, inference_pb2.GenerateRequest(prompt=common_pb2.Prompt(text="refuse it"), sampling=sampling)
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"as you asked: {json.dumps(told)}" in error.details()


def test_a_constrained_output_does_not_go_on_at_another_engine(served: Served) -> None:
    """An engine would begin the constraint anew, so the call ends with an error rather than break it."""
    sampling = common_pb2.SamplingParams(max_tokens=5, regex="a+")
    error = refused(served, inference_pb2.GenerateRequest(prompt=common_pb2.Prompt(text="break it"), sampling=sampling))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    eventually(lambda: served.serving() == {"a", "b"}, "both serve again")


def test_tools_are_rendered_by_the_engine_and_calls_are_read_as_its_template_writes_them(served: Served) -> None:
    tool = common_pb2.Tool(name="weather", description="Tell it.", parameters='{"type": "object", "properties": {}}')
    earlier = common_pb2.ChatMessage(
        role="assistant", tool_calls=[common_pb2.ToolCall(id="a", name="weather", arguments='{"city": "Paris"}')]
    )
    messages = [common_pb2.ChatMessage(role="user", content="hello"), earlier]
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(chat=common_pb2.Chat(messages=messages, tools=[tool])),
        sampling=common_pb2.SamplingParams(max_tokens=3, ignore_eos=True),
    )
    with caller(served.gateway.address) as stub:
        responses = list(stub.Generate(request, timeout=services.DEADLINE))
    offered = {"name": "weather", "description": "Tell it.", "parameters": {"type": "object", "properties": {}}}
    called = {"name": "weather", "arguments": {"city": "Paris"}}
    lines = [f"tool: {json.dumps(offered)}", "user: hello", f"assistant: <tool_call>{json.dumps(called)}</tool_call>"]
    prompt = "\n".join((*lines, "assistant: "))
    known = responses[0].accepted
    assert (known.prompt_tokens, output_of(responses)) == (len(prompt), output_after(prompt, 3))
    assert (known.output_format.tool_calls, known.output_format.reasoning) == ("hermes", "think")
    chat = common_pb2.Chat(messages=messages, tools=[tool], tool_choice=common_pb2.ToolChoice(required=True))
    required = inference_pb2.GenerateRequest(prompt=common_pb2.Prompt(chat=chat))
    assert "tool_choice: calls cannot be promised" in refused(served, required).details()


def test_the_marks_of_a_known_family_are_asked_for_and_read(tmp_path: Path) -> None:
    """An engine hides special tokens unless it is asked to show them; then their reasoning would be answer."""
    stack = Stack(tmp_path)
    engine = EngineProcess(tmp_path / "engine.log", harmony=1)
    try:
        stack.adapter("a", engine=engine.address, kv_events=f"{engine.events},{engine.replay}")
        gateway = stack.gateway(throttle="none", http_listen="127.0.0.1:0")
        gateway.wait_for("ready")
        http = HttpClient(gateway.wait_for("listening")["http_port"])
        answer = http.post(CHAT, {"messages": HELLO, "max_tokens": 3, "ignore_eos": True}).json["choices"][0]
        text, _ = output_after("user: hello\n<|start|>assistant", 3)
        assert (answer["message"]["reasoning_content"], answer["message"]["content"]) == ("Hm.", text)
    finally:
        engine.kill()
        stack.close()


def test_a_call_whose_connection_breaks_goes_on_elsewhere(served: Served) -> None:
    """Also within a character of two bytes, after each of the first tokens."""
    for number in range(4):
        text = f"break {number}"
        assert output_of(served.call(text, 5)) == output_after(text, 5)


def test_requests_beyond_the_engines_room_wait_here_and_an_abort_reaches_the_engine(served: Served) -> None:
    with ThreadPoolExecutor(16) as callers:
        found = list(callers.map(lambda number: output_of(served.call(f"Story {number}", 30)), range(16)))
    assert found == [output_after(f"Story {number}", 30) for number in range(16)]
    for engine in served.engines.values():
        assert 0 < engine.metric("served_engine_most_requests") <= MOST_RUNNING
    with caller(served.gateway.address) as stub:
        call = stub.Generate(request_for("An endless story", 300), timeout=services.DEADLINE)
        next(call)
        call.cancel()
    engines = served.engines.values()
    eventually(lambda: not any(engine.metric("vllm:num_requests_running") for engine in engines), "engines are idle")


@pytest.mark.parametrize("victim", ["engine", "adapter"])
def test_calls_go_on_elsewhere_and_what_died_comes_back(served: Served, victim: str) -> None:
    eventually(lambda: served.serving() == {"a", "b"}, "both serve")
    expected = [output_after(f"Long story {number}", 150) for number in range(4)]
    died = threading.Event()

    def call(number: int) -> Responses:
        responses: Responses = []
        request = request_for(f"Long story {number}", 150)
        request.streaming = inference_pb2.STREAMING_EACH_TOKEN  # else so few responses may hold the whole output
        with caller(served.gateway.address) as stub:
            for response in stub.Generate(request, timeout=services.DEADLINE):
                responses.append(response)
                if len(responses) == 5 and responses[0].accepted.worker == "a" and not died.is_set():
                    died.set()
                    (served.engines["a"] if victim == "engine" else served.stack.workers["a"]).kill()
        return responses

    with ThreadPoolExecutor(4) as callers:
        found = list(callers.map(call, range(4)))
    assert died.is_set()
    assert [output_of(responses) for responses in found] == expected
    eventually(lambda: served.serving() == {"b"}, "a has left the fleet")
    if victim == "engine":
        served.engines["a"].start()
    else:
        served.start_adapter("a")
    eventually(lambda: served.serving() == {"a", "b"}, "a is back")
    eventually(lambda: served.call("Welcome back", 2)[0].accepted.worker == "a", "a gets calls")
