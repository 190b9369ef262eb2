"""Requests that are refused at the door: the right status, and a message that names field, limit and value."""

import hashlib
import math
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from fairlead.errors import FairleadError, InvalidRequest, TooLong, Unavailable
from fairlead.outcomes import Outcome
from fairlead.rpc.status import from_call
from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc, scheduler_pb2
from gateway.validation import check_prompt
from serving.rpc.channel import MAX_REQUEST_BYTES
from tests.services import Stack

Request = inference_pb2.GenerateRequest


def prompt(**kind: Any) -> Request:
    return Request(prompt=common_pb2.Prompt(**kind))


def chat(*messages: tuple[str, str]) -> Request:
    return prompt(chat=common_pb2.Chat(messages=[common_pb2.ChatMessage(role=r, content=c) for r, c in messages]))


def ids(packed: bytes) -> Request:
    return prompt(token_ids=common_pb2.TokenIds(packed=packed))


def sampling(**params: Any) -> Request:
    return Request(prompt=common_pb2.Prompt(text="hello"), sampling=common_pb2.SamplingParams(**params))


def interaction(**fields: Any) -> Request:
    return Request(prompt=common_pb2.Prompt(text="hello"), interaction=inference_pb2.Interaction(**fields))


BAD = [
    (Request(), "prompt", ["text, chat and token_ids"]),
    (prompt(text=""), "prompt.text", ["must not be empty"]),
    (chat(), "prompt.chat.messages", ["at least 1", "got 0"]),
    (chat(("user", "")), "prompt.chat.messages", ["must not be empty"]),
    (chat(("user", "hi"), ("robot", "hi")), "prompt.chat.messages[1].role", ["system, user", "'robot'"]),
    (ids(b""), "prompt.token_ids.packed", ["at least 1", "got 0"]),
    (ids(b"abcde"), "prompt.token_ids.packed", ["multiple of 4", "got 5"]),
    (ids(pack_ids([1, 4_000_000_000])), "prompt.token_ids.packed", ["below", "4000000000"]),
    (Request(model="gpt", prompt=common_pb2.Prompt(text="x")), "model", ["'gpt'", "smollm2-135m-instruct"]),
    (sampling(max_tokens=0), "sampling.max_tokens", ["at least 1", "got 0"]),
    (sampling(temperature=-1.0), "sampling.temperature", ["between 0.0 and 100.0", "got -1.0"]),
    (sampling(temperature=math.nan), "sampling.temperature", ["got nan"]),
    (sampling(top_p=1.5), "sampling.top_p", ["between 0.0 and 1.0", "1.5"]),
    (sampling(stop=[""]), "sampling.stop", ["must not be empty"]),
    (chat(*[("user", "")] * 10_001), "prompt.chat.messages", ["at most 10000", "got 10001"]),
    (sampling(stop=["x"] * 17), "sampling.stop", ["at most 16", "got 17"]),
    (sampling(stop_token_ids=[4_000_000_000]), "sampling.stop_token_ids", ["below", "4000000000"]),
    (sampling(logit_bias={4_000_000_000: 1.0}), "sampling.logit_bias", ["below", "4000000000"]),
    (sampling(logit_bias={7: 101.0}), "sampling.logit_bias[7]", ["between -100.0 and 100.0", "got 101.0"]),
    (sampling(logit_bias={7: math.nan}), "sampling.logit_bias[7]", ["got nan"]),
    (sampling(logit_bias=dict.fromkeys(range(301), 1.0)), "sampling.logit_bias", ["at most 300", "got 301"]),
    (sampling(json_schema="x" * 65_537), "sampling.json_schema", ["at most 65536 bytes", "got 65537"]),
    (sampling(regex=""), "sampling.regex", ["must not be empty"]),
    (sampling(choice=common_pb2.Choices()), "sampling.choice", ["1 to 1024", "got 0"]),
    (sampling(json_schema='{"type":"thing"}'), "sampling.json_schema", ["Invalid type: thing"]),  # the worker says so
    (sampling(regex="a", ignore_eos=True), "sampling.regex", ["not together with ignore_eos"]),
    (sampling(json_object=True, min_tokens=1), "sampling.json_object", ["not together with"]),
    (interaction(), "interaction.id", ["must not be empty"]),
    (interaction(id="x" * 129), "interaction.id", ["at most 128", "got 129"]),
    (interaction(id="x\x1b[31m"), "interaction.id", ["printable", r"'x\x1b[31m'"]),
    (interaction(id="x", stage=1, token=b"x" * 1025), "interaction.token", ["at most 1024", "got 1025"]),
    (interaction(id="x", stage=0, token=b"x"), "interaction.stage", ["not the first", "got stage 0"]),
    (
        Request(prompt=common_pb2.Prompt(text="x"), streaming=cast("inference_pb2.Streaming", 99)),
        "streaming",
        ["STREAMING_EACH_TOKEN", "got 99"],
    ),
    (Request(prompt=common_pb2.Prompt(text="x"), app="x" * 129), "app", ["at most 128", "got 129"]),
    (Request(prompt=common_pb2.Prompt(text="x"), app="ch\u200bat"), "app", ["can be seen", r"'ch\u200bat'"]),
]


def refusal(stub: inference_pb2_grpc.InferenceStub, request: Request) -> tuple[FairleadError, grpc.RpcError]:
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(request, timeout=60))
    return from_call(caught.value), caught.value


@pytest.mark.parametrize(
    ("request_", "field", "words"), BAD, ids=[f"{n}-{field}" for n, (_, field, _) in enumerate(BAD)]
)
def test_a_bad_field_is_named(
    shared: inference_pb2_grpc.InferenceStub, request_: Request, field: str, words: list[str]
) -> None:
    error, call = refusal(shared, request_)
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error, InvalidRequest)
    assert error.outcome is Outcome.REJECTED_INVALID
    assert error.field == field
    for word in (field, *words):
        assert word in error.message


@pytest.mark.parametrize(
    ("request_", "field", "limit", "value"),
    [
        (sampling(max_tokens=4_000_000_000), "sampling.max_tokens", "8192", "4000000000"),
        (sampling(max_tokens=8192), "sampling.max_tokens", "8192", "max_tokens 8192"),
        (prompt(text="x" * 10_000), "prompt", "8176", "10000"),
        (chat(*[("user", "")] * 9_000), "prompt", "8176", "9000 messages"),
        (ids(pack_ids([4_000_000_000] * 1_000_000)), "prompt", "8176", "1000000"),
    ],
    ids=["huge", "just over", "prompt", "messages", "token ids"],
)
def test_a_prompt_that_can_never_fit_is_too_long(
    shared: inference_pb2_grpc.InferenceStub, request_: Request, field: str, limit: str, value: str
) -> None:
    error, call = refusal(shared, request_)
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error, TooLong)
    assert error.field == field
    assert limit in error.message
    assert value in error.message


@pytest.mark.parametrize(
    ("method", "data"),
    [("Generate", b"\x12\x03\x0a\x01\xff"), ("Generate", b"\xff\xff\xff"), ("ListModels", b"\xff\xff\xff")],
    ids=["text not UTF-8", "no message", "no message for ListModels"],
)
def test_bytes_that_are_no_request(shared_channel: grpc.Channel, method: str, data: bytes) -> None:
    call = shared_channel.unary_stream(f"/fairlead.v1.Inference/{method}", request_serializer=bytes)
    with pytest.raises(grpc.RpcError) as caught:
        list(call(data, timeout=60))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "UTF-8" in caught.value.details()


def test_nothing_is_parsed_for_callers_that_nobody_knows(stack: Stack, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"keys:\n  - {{hash: {hashlib.sha256(b'k').hexdigest()}, tenant: acme}}\n")
    with grpc.insecure_channel(stack.start("gateway", scheduler=stack.addresses, keys=keys).address) as channel:
        for method in ("Generate", "EndInteraction", "ListModels"):
            call = channel.unary_stream(f"/fairlead.v1.Inference/{method}", request_serializer=bytes)
            codes = []
            for key in ("unknown", "k"):
                with pytest.raises(grpc.RpcError) as caught:
                    list(call(b"\xff\xff\xff", timeout=60, metadata=[("authorization", f"Bearer {key}")]))
                codes.append(caught.value.code())
            assert codes == [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT], method


def test_messages_are_bounded_however_long_prompts_may_be() -> None:
    model = scheduler_pb2.ModelInfo(max_prompt_tokens=1_000_000)
    with pytest.raises(InvalidRequest, match="at most 10000 messages, got 10001") as raised:
        check_prompt(chat(*[("user", "x")] * 10_001).prompt, model)
    assert raised.value.field == "prompt.chat.messages"


def test_a_message_that_is_too_large(shared: inference_pb2_grpc.InferenceStub) -> None:
    _, call = refusal(shared, prompt(text="x" * (MAX_REQUEST_BYTES + 1)))
    assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX_REQUEST_BYTES) in call.details()


def test_metadata_that_is_too_large(shared: inference_pb2_grpc.InferenceStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(shared.Generate(prompt(text="x"), timeout=60, metadata=[("x-fairlead-user", "x" * 64 * 1024)]))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as caught:
        list(shared.Generate(prompt(text="x"), timeout=60, metadata=[("x-fairlead-user", "x" * 129)]))
    assert "128" in caught.value.details()


def test_a_prompt_whose_tokens_exceed_an_internal_message(shared: inference_pb2_grpc.InferenceStub) -> None:
    error, _ = refusal(shared, prompt(text="x" * (MAX_REQUEST_BYTES - 100)))
    assert isinstance(error, TooLong)
    assert error.field == "prompt"


def test_without_any_worker_the_call_may_be_retried(stack: Stack) -> None:
    with grpc.insecure_channel(stack.gateway().address) as channel:
        error, call = refusal(inference_pb2_grpc.InferenceStub(channel), prompt(text="x"))
    assert isinstance(error, Unavailable)
    assert "no worker" in error.message
    details = [detail.TypeName() for detail in rpc_status.from_call(call).details]
    assert error_details_pb2.RetryInfo.DESCRIPTOR.full_name in details
