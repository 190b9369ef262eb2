"""One system's trial: the quiet user alone, then beside the agent and the flooder."""

import asyncio
import itertools
from collections.abc import Coroutine, Iterable, Iterator

import aiohttp

from bench.flood.call import ObservedCall
from bench.flood.client import CallClient, Endpoint
from bench.flood.phase import RAMP_SECONDS, Phase
from bench.flood.workload import AGENT, FLOOD, QUIET, Asked, Question, Workload

WARM_UP = 3  # calls before the trial


async def trial(endpoint: Endpoint, work: Workload, alone_seconds: float, seconds: float) -> tuple[Phase, Phase]:
    """Return what was seen while the quiet user was alone, and under the flood.

    Raises CallFailed when the system answers with an error.
    """
    # Uvicorn ends connections that are idle for 5 s: a call that reuses one at this moment would fail.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
    forever = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=forever) as session:
        await _warm_up(CallClient(session, endpoint), work)
        alone = await _alone(CallClient(session, endpoint), work, alone_seconds)
        return alone, await _flooded(CallClient(session, endpoint), work, seconds)


async def _warm_up(client: CallClient, work: Workload) -> None:
    """Let the system do once what it will do; the calls beside each other have texts that do not come again."""
    async with asyncio.TaskGroup() as group:
        for number in range(WARM_UP):
            group.create_task(client.call(QUIET, work.warm_up(number)))


async def _alone(client: CallClient, work: Workload, seconds: float) -> Phase:
    return await _phase(client, 0.0, seconds, [_ask(client, work.questions("alone", seconds))])


async def _flooded(client: CallClient, work: Workload, seconds: float) -> Phase:
    interactions, calls = itertools.count(), itertools.count()
    users = [
        _ask(client, work.questions("flooded", RAMP_SECONDS + seconds)),
        *(_interact(client, work, interactions) for _ in range(work.agent_open)),
        *(_flood(client, work, calls) for _ in range(work.flood_open)),
    ]
    return await _phase(client, RAMP_SECONDS, seconds, users)


async def _phase(
    client: CallClient, ramp: float, seconds: float, users: Iterable[Coroutine[None, None, None]]
) -> Phase:
    """Let the users call for `ramp` and `seconds`, then cancel what is open."""
    loop = asyncio.get_running_loop()
    began = loop.time() + ramp
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(user) for user in users]
        await asyncio.sleep(ramp + seconds)
        ended = loop.time()
        for task in tasks:
            task.cancel()
    return Phase(began, ended, client.calls)


async def _ask(client: CallClient, questions: Iterable[Question]) -> None:
    """Ask each question when it is due, whether or not those before were answered."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for question in questions:
            await asyncio.sleep(began + question.at - loop.time())
            group.create_task(client.call(QUIET, question.asked))


async def _interact(client: CallClient, work: Workload, numbers: Iterator[int]) -> None:
    """Run one of the agent's interactions after the other."""
    for number in numbers:
        (await _interaction(client, work, number)).ends_interaction = True


async def _interaction(client: CallClient, work: Workload, number: int) -> ObservedCall:
    """Run one interaction and return its last call."""
    prompt = ""
    for observation in work.observations(number):
        prompt += observation
        call = await client.call(AGENT, Asked(prompt, work.agent_answer))
        prompt += call.text
    return call


async def _flood(client: CallClient, work: Workload, numbers: Iterator[int]) -> None:
    """Send a call as soon as the one before is answered."""
    for number in numbers:
        await client.call(FLOOD, work.flood(number))
