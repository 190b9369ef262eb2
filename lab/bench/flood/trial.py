"""One system's trial: the quiet user alone, then beside the agent and the flooder."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Protocol

from lab.bench.flood.call import ObservedCall
from lab.bench.flood.phase import RAMP_SECONDS, Phase
from lab.bench.flood.workload import AGENT, FLOOD, QUIET, Asked, Question, Workload

WARM_UP = 3  # calls before the trial


class Caller(Protocol):
    """Sends calls to a system and keeps what was observed of each, also of those that were cancelled."""

    @property
    def calls(self) -> Sequence[ObservedCall]:
        """The calls in the order in which they were sent."""

    async def call(self, user: str, asked: Asked) -> ObservedCall:
        """Return the finished call; raise an error if the system answers with one."""


async def trial(
    make_caller: Callable[[], Caller],
    work: Workload,
    alone_seconds: float,
    seconds: float,
    ramp: float = RAMP_SECONDS,
) -> tuple[Phase, Phase]:
    """Return what was seen while the quiet user was alone, and under the flood after its first `ramp` seconds.

    Each part has a caller of its own. Raises what the callers raise.
    """
    await _warm_up(make_caller(), work)
    alone = await _alone(make_caller(), work, alone_seconds)
    return alone, await _flooded(make_caller(), work, ramp, seconds)


async def _warm_up(caller: Caller, work: Workload) -> None:
    """Let the system do once what it will do; the calls beside each other have texts that do not come again."""
    async with asyncio.TaskGroup() as group:
        for number in range(WARM_UP):
            group.create_task(caller.call(QUIET, work.warm_up(number)))


async def _alone(caller: Caller, work: Workload, seconds: float) -> Phase:
    return await _phase(caller, 0.0, seconds, [ask(caller, work.questions("alone", seconds))])


async def _flooded(caller: Caller, work: Workload, ramp: float, seconds: float) -> Phase:
    interactions, calls = itertools.count(), itertools.count()
    users = [
        ask(caller, work.questions("flooded", ramp + seconds)),
        *(_interact(caller, work, interactions) for _ in range(work.agent_open)),
        *(_flood(caller, work, calls) for _ in range(work.flood_open)),
    ]
    return await _phase(caller, ramp, seconds, users)


async def _phase(caller: Caller, ramp: float, seconds: float, users: Iterable[Coroutine[None, None, None]]) -> Phase:
    """Let the users call for `ramp` and `seconds`, then cancel what is open."""
    loop = asyncio.get_running_loop()
    began = loop.time() + ramp
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(user) for user in users]
        await asyncio.sleep(ramp + seconds)
        ended = loop.time()
        for task in tasks:
            task.cancel()
    return Phase(began, ended, caller.calls)


async def ask(caller: Caller, questions: Iterable[Question]) -> None:
    """Ask each question when it is due, whether or not those before were answered."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for question in questions:
            await asyncio.sleep(began + question.at - loop.time())
            group.create_task(caller.call(QUIET, question.asked))


async def _interact(caller: Caller, work: Workload, numbers: Iterator[int]) -> None:
    """Run one of the agent's interactions after the other."""
    for number in numbers:
        (await _interaction(caller, work, number)).ends_interaction = True


async def _interaction(caller: Caller, work: Workload, number: int) -> ObservedCall:
    """Run one interaction and return its last call."""
    prompt = ""
    for observation in work.observations(number):
        prompt += observation
        call = await caller.call(AGENT, Asked(prompt, work.agent_answer))
        prompt += call.text
    return call


async def _flood(caller: Caller, work: Workload, numbers: Iterator[int]) -> None:
    """Send a call as soon as the one before is answered."""
    for number in numbers:
        await caller.call(FLOOD, work.flood(number))
