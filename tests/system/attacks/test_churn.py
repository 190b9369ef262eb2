"""Many users who come and go: what is remembered of them is bounded."""

import asyncio
import hashlib
from collections import Counter

import grpc
import pytest

from fairlead.outcomes import Outcome
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import Process, Stack
from tests.system.attacks.conftest import KEY
from tests.system.attacks.report import Memory, Report
from tests.system.attacks.sizes import Sizes

CALLERS = 24  # at once
WARM = 50  # calls before memory is looked at
MOST_GROWTH = 32  # MiB, and 1 KiB for each call: what an interaction takes, which is remembered after its end
SAMPLING = common_pb2.SamplingParams(max_tokens=4, ignore_eos=True)
NO_LIMIT = 10**9


@pytest.fixture
def gateway(stack: Stack, sizes: Sizes) -> Process:
    """Whose key may name as many users as come."""
    keys, digest = stack.directory / "keys.yaml", hashlib.sha256(KEY.encode()).hexdigest()
    keys.write_text(f"keys:\n  - {{hash: {digest}, tenant: open, names_users: true, max_users: {sizes.users}}}\n")
    gateway = stack.start("gateway", scheduler=stack.addresses, keys=keys, throttle=f"oit:{NO_LIMIT},{NO_LIMIT}")
    gateway.wait_for("ready")
    return gateway


async def outcome(stub: inference_pb2_grpc.InferenceStub, user: int, number: int) -> str:
    """How a call ends; every other one opens an interaction, and leaves it open."""
    request = inference_pb2.GenerateRequest(prompt=common_pb2.Prompt(text=f"Story {number}"), sampling=SAMPLING)
    if number % 2:
        request.interaction.id = f"{number:0>100}"
    metadata = (("authorization", f"Bearer {KEY}"), ("x-fairlead-user", f"user {user:0>40}"))
    answers = [answer async for answer in stub.Generate(request, metadata=metadata, timeout=60)]
    return str(Outcome(answers[-1].finished.outcome))


async def churn(address: str, users: int, calls: int) -> Counter[str]:
    """How calls end that users make in turn."""
    ends, numbers = Counter[str](), iter(range(calls))

    async def caller(stub: inference_pb2_grpc.InferenceStub) -> None:
        for number in numbers:
            ends[await outcome(stub, number % users, number)] += 1

    async with grpc.aio.insecure_channel(address) as channel, asyncio.TaskGroup() as tasks:
        for _ in range(CALLERS):
            tasks.create_task(caller(inference_pb2_grpc.InferenceStub(channel)))
    return ends


def test_users_who_come_and_go(stack: Stack, gateway: Process, sizes: Sizes, report: Report) -> None:
    asyncio.run(churn(gateway.address, 1, WARM))
    memory = Memory(gateway=gateway, scheduler=stack.scheduler, worker=stack.workers["a"])
    ends = asyncio.run(churn(gateway.address, sizes.users, sizes.calls))
    assert ends == {"COMPLETED": sizes.calls}
    assert memory.grown < MOST_GROWTH + sizes.calls / 1024
    report.add(f"calls of {sizes.users:,} users", ends, memory)
