"""Connections that take long to set up: nobody's call fails for that."""

import asyncio

from fairlead import Client, Retries
from tests.services import Stack
from tests.system.faults.load import caller, request_for
from tests.system.faults.route import Route

CONNECTING = 0.3  # seconds: three round trips across an ocean
CALLS = 10


async def call_at_once(address: str) -> list[int]:
    """How many tokens each of CALLS calls brought that a client made before it was connected; none is tried again."""
    async with Client(address, retries=Retries(attempts=0)) as client:
        calls = [client.generate("hello", max_tokens=3, ignore_eos=True) for _ in range(CALLS)]
        return [len(completion.token_ids) for completion in await asyncio.gather(*calls)]


def test_a_client_far_away(stack: Stack) -> None:
    stack.worker("a")
    with Route(stack.gateway().address, CONNECTING) as route:
        assert asyncio.run(call_at_once(route.address)) == [3] * CALLS


def test_a_worker_far_away(stack: Stack) -> None:
    stack.worker("a")
    address = stack.workers["a"].address
    with Route(address, CONNECTING) as route:
        stack.replace_worker("a", listen=address, advertise=route.address)
        with caller(stack.gateway().address) as stub:
            assert list(stub.Generate(request_for("hello", 3)))[-1].HasField("finished")
