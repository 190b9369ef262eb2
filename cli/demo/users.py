"""Three users whose demand exceeds the capacity: one floods, and two ask for their share."""

import asyncio
import itertools
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass, field

from cli.demo.lengths import Lengths
from fairlead import Client, Completion
from fairlead.errors import FairleadError

ORDINARY_IDS = range(100, 200)  # exist in every vocabulary and are never special tokens
PAUSE_SECONDS = 1.0  # after an error


@dataclass(frozen=True, slots=True)
class DemoUser:
    """A user with `parallel` open questions, each replaced when it is answered; its prefix repeats `prefix_id`."""

    name: str
    parallel: int
    prefix_id: int

    def prompts(self, lengths: Lengths) -> Iterator[list[int]]:
        """Yield prompts with the user's prefix and ever new questions."""
        size = len(ORDINARY_IDS)
        for number in itertools.count():
            question = [ORDINARY_IDS[number // size**digit % size] for digit in range(lengths.question)]
            yield [self.prefix_id] * lengths.prefix + question


# With 16 open questions, alice and bob always have requests waiting on both workers under any scheduler. A user with
# less demand than its share would not show whether the scheduler gives it the share.
USERS = (DemoUser("flood", 128, 200), DemoUser("alice", 16, 201), DemoUser("bob", 16, 202))


@dataclass(frozen=True, slots=True)
class UserCall:
    """One finished call as its user saw it; times are in seconds."""

    user: str
    ttft: float
    latency: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(slots=True)
class DemoRecord:
    """The calls and errors that the users saw."""

    calls: MutableSequence[UserCall] = field(default_factory=list)
    errors: MutableSequence[str] = field(default_factory=list)


async def contend(gateway: str, lengths: Lengths, stop: asyncio.Event, record: DemoRecord) -> None:
    """Let all users ask until `stop` is set, then cancel the open calls."""
    async with asyncio.TaskGroup() as group:
        users = [group.create_task(ask(gateway, user, lengths, record)) for user in USERS]
        await stop.wait()
        for user in users:
            user.cancel()


async def ask(gateway: str, user: DemoUser, lengths: Lengths, record: DemoRecord) -> None:
    """Let one user keep its open questions until cancelled."""
    prompts = user.prompts(lengths)
    async with Client(gateway, user=user.name) as client, asyncio.TaskGroup() as group:
        for _ in range(user.parallel):
            group.create_task(_converse(client, user.name, prompts, lengths.answer, record))


async def _converse(client: Client, user: str, prompts: Iterator[list[int]], answer: int, record: DemoRecord) -> None:
    while True:
        try:
            completion = await client.generate(next(prompts), max_tokens=answer, ignore_eos=True)
            record.calls.append(_call(user, completion))
        except FairleadError as error:
            record.errors.append(f"{user}: {type(error).__name__}: {error}")
            await asyncio.sleep(PAUSE_SECONDS)


def _call(user: str, completion: Completion) -> UserCall:
    timings, usage = completion.timings, completion.usage
    return UserCall(
        user=user,
        ttft=(timings.first_token - timings.received) / 1e9,
        latency=(timings.finished - timings.received) / 1e9,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
    )
