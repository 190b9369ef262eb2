"""Messages that nobody should send, to every method: a documented status each, and nothing dies or logs a traceback."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fairlead.v1 import common_pb2, inference_pb2, scheduler_pb2, throttling_pb2, traces_pb2, worker_pb2
from serving.rpc.channel import secret_metadata
from tests.services import SECRET, Process, Stack
from tests.system.attacks import honest
from tests.system.attacks.conftest import KEY, gateway_of
from tests.system.attacks.messages import bodies, near, structured
from tests.system.attacks.report import Memory, Report
from tests.system.attacks.sizes import Sizes

PUBLIC = list(inference_pb2.DESCRIPTOR.services_by_name["Inference"].methods)
INTERNAL: dict[str, tuple[ServiceDescriptor, ...]] = {
    "scheduler": tuple(scheduler_pb2.DESCRIPTOR.services_by_name.values()),
    "worker": tuple(worker_pb2.DESCRIPTOR.services_by_name.values()),
    "gateway": (
        *throttling_pb2.DESCRIPTOR.services_by_name.values(),
        *traces_pb2.DESCRIPTOR.services_by_name.values(),
    ),
}
SAMPLING = common_pb2.SamplingParams(max_tokens=4, ignore_eos=True)
PROMPT = common_pb2.Prompt(text="hello")
SUBMIT = worker_pb2.Submit(request_id="r", attempt=1, client="c", token_ids=bytes(80), sampling=SAMPLING, weight=1)
DISPATCH = scheduler_pb2.DispatchRequest(request_id="r", attempt=1, client="c", prompt_tokens=20, weight=1)
# What a method may be near to accepting; others are near to accepting an empty message.
NEAR: dict[str, st.SearchStrategy[Any]] = {
    "Generate": near(inference_pb2.GenerateRequest(prompt=PROMPT, sampling=SAMPLING)),
    "EndInteraction": near(inference_pb2.EndInteractionRequest(interaction=inference_pb2.Interaction(id="journey"))),
    "Encode": near(worker_pb2.EncodeRequest(prompt=PROMPT)),
    "Session": near(SUBMIT).map(lambda submit: worker_pb2.SessionCommands(submits=[submit])),
    "Dispatch": near(DISPATCH).map(lambda request: scheduler_pb2.DispatchBatch(requests=[request])),
}
METHODS = [(service, method) for service, of in INTERNAL.items() for each in of for method in each.methods]
Metadata = tuple[tuple[str, str], ...]
MOST_GROWTH = 64  # MiB
AT_ONCE = 10  # calls of one example
WITH_KEY = (("authorization", f"Bearer {KEY}"),)
# What the public service says to a caller whose messages make no sense (fairlead/rpc/status.py).
DOCUMENTED = {"OK", "INVALID_ARGUMENT", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"}
DOCUMENTED_INSIDE = {"OK", "INVALID_ARGUMENT"}
OF_A_MODEL = ("EncodeRequest", "DecodeRequest")  # a worker is unavailable for a model that it does not serve
PATIENCE = 0.3  # seconds until a caller leaves a stream that does not end by itself


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With a worker whose name nobody guesses, and which can generate few tokens for one call."""
    stack = Stack(tmp_path_factory.mktemp("fuzzed"))
    stack.worker("the worker of this test", kv_tokens=512)
    yield stack
    stack.close()


@pytest.fixture(scope="module")
def services(attacked: Stack) -> dict[str, Process]:
    """The attacked processes, by what they are."""
    [worker] = attacked.workers.values()
    return {"gateway": gateway_of(attacked, attacked.directory), "scheduler": attacked.scheduler, "worker": worker}


@pytest.fixture(scope="module")
def memory(services: dict[str, Process]) -> Memory:
    """Of all tests here together."""
    return Memory(**services)


def end_of(call: grpc.Call) -> str:
    """Read a call to its end."""
    with contextlib.suppress(grpc.RpcError):
        for _ in call:
            pass
    return str(call.code().name)


def messages_of(method: MethodDescriptor) -> st.SearchStrategy[list[bytes]]:
    """What an attacker sends in one call."""
    almost = NEAR.get(method.name, near(GetMessageClass(method.input_type)()))
    return st.lists(
        bodies(almost | structured(method.input_type)), min_size=1, max_size=3 if method.client_streaming else 1
    )


def fuzz(
    process: Process,
    method: MethodDescriptor,
    calls: int,
    metadata: Metadata,
    documented: set[str],
    timeout: float = 60,
) -> Counter[str]:
    """Make about so many calls; fails on a status that is not documented, with the smallest messages that show it."""
    ends = Counter[str]()

    @settings(
        max_examples=max(1, calls // AT_ONCE),
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(st.lists(messages_of(method), min_size=AT_ONCE, max_size=AT_ONCE))
    def attack(messages: list[list[bytes]]) -> None:
        generic = channel.stream_stream(f"/{method.containing_service.full_name}/{method.name}")
        open_calls = [generic(iter(each), timeout=timeout, metadata=metadata) for each in messages]
        new = Counter(end_of(call) for call in open_calls)
        assert new.keys() <= documented, new
        ends.update(new)

    with grpc.insecure_channel(process.address) as channel:
        attack()
    return ends


def assert_unharmed(services: dict[str, Process], memory: Memory) -> None:
    """An honest call is served, nobody wrote a traceback, and memory is bounded."""
    assert asyncio.run(honest.served(services["gateway"].address)) == 2
    assert not [name for name, process in services.items() if "Traceback" in process.log]
    assert memory.grown < MOST_GROWTH


@pytest.mark.parametrize("method", PUBLIC, ids=lambda method: method.name)
def test_the_public_service(
    services: dict[str, Process], memory: Memory, method: MethodDescriptor, sizes: Sizes, report: Report
) -> None:
    calls = sizes.fuzzed * 4 // 10 if method.name == "Generate" else sizes.fuzzed // 20
    ends = fuzz(services["gateway"], method, calls, WITH_KEY, DOCUMENTED)
    assert_unharmed(services, memory)
    report.add("fuzzed messages at the public service, with a key", ends, memory)


@pytest.mark.parametrize(("service", "method"), METHODS, ids=[method.full_name for _, method in METHODS])
def test_internal_services(
    services: dict[str, Process],
    memory: Memory,
    service: str,
    method: MethodDescriptor,
    sizes: Sizes,
    report: Report,
) -> None:
    calls = sizes.fuzzed // 2 // len(METHODS)
    refused = fuzz(services[service], method, calls // 5, (), {"UNAUTHENTICATED"})
    documented, timeout = DOCUMENTED_INSIDE, 60.0
    if method.input_type.name in OF_A_MODEL:
        documented = documented | {"UNAVAILABLE"}
    if method.server_streaming:
        documented, timeout = documented | {"DEADLINE_EXCEEDED"}, PATIENCE
    ends = fuzz(services[service], method, calls * 4 // 5, secret_metadata(SECRET), documented, timeout)
    assert_unharmed(services, memory)
    report.add("fuzzed messages at internal services, without the secret", refused, memory)
    report.add("fuzzed messages at internal services, with the secret", ends, memory)
