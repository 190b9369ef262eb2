"""Whoever called can name the call, and the operator finds it: ids in responses, refusals and the log."""

from collections.abc import Iterator

import grpc
import pytest

from fairlead.rpc.status import REQUEST_ID_METADATA, from_call
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from gateway.admission import caller_request_id
from tests.services import Process, Stack, eventually

PROMPT = common_pb2.Prompt(text="hello")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    stack = Stack(tmp_path_factory.mktemp("stack"))
    try:
        stack.worker("a")
        yield stack.gateway(throttle="none")
    finally:
        stack.close()


@pytest.fixture
def stub(gateway: Process) -> Iterator[inference_pb2_grpc.InferenceStub]:
    with grpc.insecure_channel(gateway.address) as channel:
        yield inference_pb2_grpc.InferenceStub(channel)


def complete(
    stub: inference_pb2_grpc.InferenceStub, *, app: str = "", request_id: str = ""
) -> tuple[inference_pb2.Accepted, str]:
    """What was accepted, and the id in the trailing metadata."""
    metadata = [(REQUEST_ID_METADATA, request_id)] if request_id else []
    call = stub.Generate(inference_pb2.GenerateRequest(prompt=PROMPT, app=app), timeout=60, metadata=metadata)
    accepted = next(call).accepted
    list(call)
    return accepted, dict(call.trailing_metadata())[REQUEST_ID_METADATA]


def logged(gateway: Process, message: str, request_id: str) -> dict[str, str]:
    """The log line of the call."""

    def lines() -> list[dict[str, str]]:
        return [line for line in gateway.logged(message) if line["request_id"] == request_id]

    line: dict[str, str] = eventually(lines, f"{message!r} of {request_id}")[0]
    return line


def test_a_completed_call_ends_with_its_id(gateway: Process, stub: inference_pb2_grpc.InferenceStub) -> None:
    accepted, trailing = complete(stub)
    assert accepted.request_id == trailing
    assert logged(gateway, "call ended", trailing)["outcome"] == "COMPLETED"


def test_a_refused_call_ends_with_its_id(gateway: Process, stub: inference_pb2_grpc.InferenceStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(inference_pb2.GenerateRequest(prompt=PROMPT, model="nope"), timeout=60))
    error = from_call(caught.value)
    assert logged(gateway, "call ended", error.request_id)["outcome"] == "REJECTED_INVALID"
    assert str(error).endswith(f"(request {error.request_id})")


def test_a_refusal_of_what_generates_nothing_has_an_id_too(
    gateway: Process, stub: inference_pb2_grpc.InferenceStub
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.EndInteraction(inference_pb2.EndInteractionRequest(), timeout=60)
    line = logged(gateway, "request refused", from_call(caught.value).request_id)
    assert (line["outcome"], line["reason"]) == ("REJECTED_INVALID", "interaction.id")


def test_the_callers_id_is_recorded_beside_ours(gateway: Process, stub: inference_pb2_grpc.InferenceStub) -> None:
    first, _ = complete(stub, request_id="mine")
    second, _ = complete(stub, request_id=first.request_id)
    assert len({first.request_id, second.request_id, "mine"}) == 3, "nobody chooses the id that calls are known by"
    assert logged(gateway, "call ended", first.request_id)["caller_request_id"] == "mine"
    assert logged(gateway, "call ended", second.request_id)["caller_request_id"] == first.request_id


def test_only_an_id_that_can_be_shown_is_kept() -> None:
    assert caller_request_id("x" * 128) == "x" * 128
    for wrong in ("x" * 129, "", "a\nb", "é"):
        assert caller_request_id(wrong) == ""


def test_who_names_an_unknown_app_is_told_what_the_call_counts_as(
    gateway: Process, stub: inference_pb2_grpc.InferenceStub
) -> None:
    accepted, trailing = complete(stub, app="agent")
    assert accepted.app == "default"
    line = logged(gateway, "call ended", trailing)
    assert (line["app"], line["named_app"]) == ("default", "agent")
