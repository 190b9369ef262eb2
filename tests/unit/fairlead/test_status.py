"""Errors over real gRPC: what a service raises is what its caller catches."""

from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from fairlead.errors import (
    ERRORS,
    FairleadError,
    InvalidRequest,
    QueueFull,
    Retryable,
    TooLong,
    Unavailable,
    error_for,
    listed,
)
from fairlead.outcomes import Outcome
from fairlead.rpc.status import CODES, from_call, to_status

METHOD = "/test.Failing/Fail"
FAILURES = [outcome for outcome in Outcome if outcome is not Outcome.COMPLETED]


class Failing(grpc.GenericRpcHandler):
    """Fails as the request says: an outcome's name, or a bare gRPC code's."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(self._fail)

    def _fail(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        name = request.decode()
        if name in Outcome.__members__:
            error = error_for(Outcome[name], f"prompt: why {name} happened", field="prompt", retry_after=1.25)
            context.abort_with_status(to_status(error))
        if name == "LONG":
            context.abort_with_status(to_status(InvalidRequest("no " + "é" * 20_000, "prompt")))
        code, _, words = name.removeprefix("BARE_").partition(": ")
        context.abort(grpc.StatusCode[code], words or "said a proxy")
        raise AssertionError("abort raises")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Failing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def fail(address: str, name: str) -> grpc.RpcError:
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(METHOD)(name.encode(), timeout=60)
    return caught.value


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.name)
def test_every_outcome_comes_back_as_its_own_error(address: str, outcome: Outcome) -> None:
    call = fail(address, outcome.name)
    error = from_call(call)
    assert type(error) is ERRORS[outcome]
    assert error.outcome is outcome
    assert call.code() is CODES[outcome]
    assert error.message == f"prompt: why {outcome.name} happened"
    if isinstance(error, Retryable):
        assert error.retry_after == 1.25
    if isinstance(error, InvalidRequest):
        assert error.field == "prompt"


def test_a_long_message_arrives_with_its_error(address: str) -> None:
    error = from_call(fail(address, "LONG"))
    assert (type(error), getattr(error, "field", "")) == (InvalidRequest, "prompt")
    assert error.message.startswith("prompt: no é")
    assert error.message.endswith("é...")


def test_of_a_long_list_a_message_tells_the_beginning() -> None:
    assert [listed([]), listed(["a"]), listed(["a", "b"])] == ["none", "a", "a, b"]
    assert listed([str(number) for number in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


async def test_the_asynchronous_api_reads_the_same_details(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(METHOD)(Outcome.THROTTLED_USER.name.encode(), timeout=60)
    error = from_call(caught.value)
    assert isinstance(error, ERRORS[Outcome.THROTTLED_USER])
    assert (error.message, error.retry_after) == ("prompt: why THROTTLED_USER happened", 1.25)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("UNAVAILABLE", Unavailable),
        ("CANCELLED", Unavailable),
        ("RESOURCE_EXHAUSTED", QueueFull),
        ("NOT_FOUND", InvalidRequest),
        ("DATA_LOSS", ERRORS[Outcome.INTERNAL]),
    ],
)
def test_a_status_without_our_details_is_understood(address: str, code: str, expected: type[FairleadError]) -> None:
    error = from_call(fail(address, f"BARE_{code}"))
    assert type(error) is expected
    assert error.message == "said a proxy"


@pytest.mark.parametrize(
    ("size", "options", "words"),
    [
        (5_000_000, [], "SERVER: Received message larger than max (5000000 vs. 4194304)"),
        (5_000, [("grpc.max_send_message_length", 4_000)], "CLIENT: Sent message larger than max (5000 vs. 4000)"),
    ],
)
def test_a_message_that_grpc_refuses_for_its_size_is_too_long(
    address: str, size: int, options: list[tuple[str, int]], words: str
) -> None:
    with grpc.insecure_channel(address, options) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(METHOD)(bytes(size), timeout=60)
    error = from_call(caught.value)
    assert (type(error), error.message) == (TooLong, words)


def test_metadata_that_grpc_refuses_for_its_size_is_invalid(address: str) -> None:
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(METHOD)(b"", metadata=[("x-fairlead-user", "u" * 100_000)], timeout=60)
    error = from_call(caught.value)
    assert type(error) is InvalidRequest
    assert "metadata size exceeds" in error.message


def test_a_server_without_the_method_is_the_wrong_one() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    assert type(from_call(fail(f"127.0.0.1:{port}", "LONG"))) is InvalidRequest
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("UNKNOWN: Received http2 header with status: 413", TooLong),
        ("UNKNOWN: Received http2 header with status: 431", InvalidRequest),
        ("UNKNOWN: Stream removed", Unavailable),
        ("DEADLINE_EXCEEDED: Stream removed (Deadline Exceeded)", ERRORS[Outcome.DEADLINE_EXCEEDED]),
        ("INTERNAL: Received RST_STREAM with error code 2", Unavailable),
        ("RESOURCE_EXHAUSTED: Received RST_STREAM with error code 11", Unavailable),
        ("UNKNOWN: said a proxy", ERRORS[Outcome.INTERNAL]),
    ],
)
def test_a_proxys_error_is_retried_if_that_can_help(address: str, status: str, expected: type[FairleadError]) -> None:
    assert type(from_call(fail(address, f"BARE_{status}"))) is expected


def test_nobody_listening_is_unavailable() -> None:
    with grpc.insecure_channel("127.0.0.1:1") as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(METHOD)(b"", timeout=60)
    assert isinstance(from_call(caught.value), Unavailable)
