"""The contention scenario: one user floods, two behave, one of these in multi-call interactions."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from fairlead import Client, Completion
from fairlead.errors import FairleadError

# The flooder's shared prefix: long, so that cache-friendly order favours it too.
HANDBOOK = (
    "You are the support desk of a harbour authority. Ships report length, draught and cargo; berths have a depth, "
    "a length and a list of cargo they may handle. Pilots board outside the breakwater. Tugs are mandatory above two "
    "hundred metres. Dangerous goods need a day's notice. Answer in one short sentence and name the berth. "
)
CARGOES = ("grain", "timber", "steel", "cars", "coal", "fruit", "salt", "paper", "wool", "cement")
QUESTIONS = ("Name a river.", "What is fog?", "Why is the sea salty?", "Name three birds.", "What is a tide?")
STEPS = ("Plan a short walk in a town.", "Shorten the plan.", "Add one stop.", "Give it a title.")


@dataclass(frozen=True, slots=True)
class Call:
    """One finished call, as its user saw it; seconds."""

    user: str
    ttft: float
    latency: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Record:
    """What the users saw."""

    calls: list[Call] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Persona:
    """A user: how many things it does at once, and what one thing is."""

    name: str
    role: str
    parallel: int
    act: Callable[[Client, int], AsyncIterator[Completion]]


async def _flood(client: Client, number: int) -> AsyncIterator[Completion]:
    cargo = CARGOES[number % len(CARGOES)]
    prompt = f"{HANDBOOK}Ship {number} brings {cargo}. Berth:"
    yield await client.generate(prompt, max_tokens=16, ignore_eos=True, app="batch")


async def _ask(client: Client, number: int) -> AsyncIterator[Completion]:
    prompt = f"Question {number}: {QUESTIONS[number % len(QUESTIONS)]} Answer:"
    yield await client.generate(prompt, max_tokens=32, ignore_eos=True, app="chat")


async def _agent(client: Client, number: int) -> AsyncIterator[Completion]:
    text = f"Task {number}. "
    async with client.interaction(app="agent") as interaction:
        for step in STEPS:
            text += f"{step} "
            completion = await interaction.generate(text, max_tokens=20, ignore_eos=True)
            text += completion.text + " "
            yield completion


# Parallelism gives the two behaving users demand for their share at all times: a user who wants less than its share
# cannot show whether the scheduler would have given it.
PERSONAS = (
    Persona("flood", "floods, long shared prefix", 64, _flood),
    Persona("alice", "single questions", 16, _ask),
    Persona("bob", "multi-call interactions", 16, _agent),
)


async def contend(gateway: str, stop: asyncio.Event, record: Record) -> None:
    """All personas act in closed loops until `stop`; what is then under way is cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = []
        for persona in PERSONAS:
            numbers = itertools.count()
            loops = (_loop(gateway, persona, numbers, record) for _ in range(persona.parallel))
            tasks += [group.create_task(loop) for loop in loops]
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _loop(gateway: str, persona: Persona, numbers: "itertools.count[int]", record: Record) -> None:
    async with Client(gateway, user=persona.name) as client:
        while True:
            try:
                async for completion in persona.act(client, next(numbers)):
                    record.calls.append(_call(persona.name, completion))
            except FairleadError as error:
                record.errors.append(f"{persona.name}: {type(error).__name__}: {error}")
                await asyncio.sleep(1.0)


def _call(user: str, completion: Completion) -> Call:
    timings, usage = completion.timings, completion.usage
    return Call(
        user=user,
        ttft=(timings.first_token - timings.received) / 1e9,
        latency=(timings.finished - timings.received) / 1e9,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
    )
