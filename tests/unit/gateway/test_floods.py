"""Every queue flooded: the gateway's open calls, the workers' queues. Others are still served."""

import asyncio
from collections import Counter

import pytest

from fairlead import Client
from fairlead.errors import FairleadError
from fairlead.outcomes import Outcome
from fairlead.retries import Retries
from tests.services import Stack


async def flood(address: str, user: str, calls: int, full: asyncio.Event) -> Counter[Outcome]:
    """All at once, none tried again; how they ended. `full` is set when the first one is refused."""
    ends = Counter[Outcome]()

    async def call(client: Client) -> None:
        try:
            await client.generate("flood", max_tokens=40, ignore_eos=True)
            ends[Outcome.COMPLETED] += 1
        except FairleadError as error:
            ends[error.outcome] += 1
            full.set()

    async with Client(address, user=user, retries=Retries(attempts=0)) as client:
        await asyncio.gather(*[call(client) for _ in range(calls)])
    return ends


async def quiet(address: str, user: str, calls: int) -> None:
    """One call after the other; every one has to complete at the first try."""
    async with Client(address, user=user, retries=Retries(attempts=0)) as client:
        for _ in range(calls):
            await client.generate("quiet", max_tokens=4, ignore_eos=True)


async def together(address: str, flooders: int, calls: int) -> list[Counter[Outcome]]:
    full = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        floods = [tasks.create_task(flood(address, f"flooder{number}", calls, full)) for number in range(flooders)]
        await full.wait()
        for number in range(3):
            tasks.create_task(quiet(address, f"quiet{number}", 4))
    return [task.result() for task in floods]


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"max_streams": 60, "max_streams_per_client": 60}, Outcome.REJECTED_QUEUE_FULL),  # the gateway's bound in all
        ({"max_streams_per_client": 20}, Outcome.REJECTED_CLIENT_LIMIT),  # and per client
        ({}, Outcome.REJECTED_QUEUE_FULL),  # the worker's
    ],
    ids=["gateway", "gateway per client", "worker"],
)
def test_a_flooder_fills_no_queue_for_others(stack: Stack, settings: dict[str, int], refusal: Outcome) -> None:
    stack.worker("a", engine="fake:0.005", max_running=4, max_waiting=1000 if settings else 30)
    gateway = stack.gateway(throttle="none", **settings)
    for ends in asyncio.run(together(gateway.address, 2, 100)):
        assert ends.total() == 100
        assert set(ends) == {Outcome.COMPLETED, refusal}
