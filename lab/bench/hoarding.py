"""Callers that reserve KV cache without using it, beside callers that use theirs: real processes, one worker, fake
engine.

    python -m lab.bench.hoarding [--admission reserve] [--policy dlpm] [--seconds 30]

Three users have eight open calls at any time and generate all tokens that they ask for. Beside them, other users make
calls of the same kind, or calls that ask for nearly the whole KV cache and are cancelled on acceptance or after four
tokens. Each row shows the service that the three received meanwhile, and what the others received and were charged, in
cost units.
"""

import argparse
import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from cli.admin import Admin
from cli.stack import Stack
from fairlead import Client
from fairlead.errors import Cancelled
from fairlead.prompt import as_prompt
from lab.bench.machine import commit, processor
from serving.rpc.channel import open_sync_channel

KV_TOKENS = 8192
STEP_SECONDS = 0.02
PROMPT_TOKENS, OUTPUT_TOKENS = 60, 60
ALL_TOKENS = 8100  # of output: no other request fits beside them
FEW_TOKENS = 4
NEIGHBOURS = {f"neighbour-{number}": 8 for number in range(3)}  # user -> open calls at any time
SETTLE_SECONDS = 2.0
COLUMNS = ("beside the three", "they were given", "of what they get alone", "others were given", "and charged")
NUMBERS = count()


def prompt() -> str:
    """Return a unique prompt of one token per character."""
    return f"{next(NUMBERS):<{PROMPT_TOKENS}}"


async def use(client: Client) -> None:
    """Make one call, which generates as many tokens as it may."""
    await client.generate(prompt(), max_tokens=OUTPUT_TOKENS, ignore_eos=True)


async def cancel(client: Client) -> None:
    """Cancel the call when a worker accepts it."""
    stream = client.start(
        as_prompt(prompt()), max_tokens=ALL_TOKENS, ignore_eos=True, on_accepted=lambda _: stream.cancel()
    )
    with contextlib.suppress(Cancelled):
        await stream.wait()


async def stop_early(client: Client) -> None:
    """Close the stream after a few tokens."""
    tokens = 0
    async with client.stream(prompt(), max_tokens=ALL_TOKENS, ignore_eos=True, each_token=True) as stream:
        async for chunk in stream:
            tokens += len(chunk.token_ids)
            if tokens >= FEW_TOKENS:
                break


async def use_little(client: Client) -> None:
    """Make a call like that of `stop_early`, but request only as many tokens as it reads."""
    await client.generate(prompt(), max_tokens=FEW_TOKENS, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class Others:
    """The callers beside the three: users with the number of calls that each has open at any time."""

    what: str
    call: Callable[[Client], Awaitable[None]]
    users: dict[str, int]


SCENES = (
    Others("nobody", use, {}),
    Others("one user, 8 calls that use what they reserve", use, {"other": 8}),
    Others("one user, 8 calls cancelled when accepted", cancel, {"other": 8}),
    Others("20 users, a call each that uses what it reserves", use, {f"other-{number}": 1 for number in range(20)}),
    Others("20 users, a call each cancelled when accepted", cancel, {f"other-{number}": 1 for number in range(20)}),
    Others("one user, 4 calls that ask for four tokens", use_little, {"other": 4}),
    Others("one user, 4 calls that stop after four tokens", stop_early, {"other": 4}),
)


@dataclass(frozen=True, slots=True)
class Received:
    """The service that all clients of a kind received and were charged, in cost units."""

    given: float
    charged: float


def received(admin: Admin) -> dict[bool, Received]:
    """Return the service so far: that of the three under True, that of the others under False."""
    clients = [client for worker in admin.status().services for client in worker.clients]
    sums = {}
    for three in (True, False):
        mine = [client for client in clients if any(name in client.client for name in NEIGHBOURS) == three]
        sums[three] = Received(sum(each.service for each in mine), sum(each.weighted_service for each in mine))
    return sums


async def measure(others: Others, policy: str, admission: str, seconds: float) -> tuple[float, float, float]:
    """Return the service to the three, and the service to and the charge of the others, within `seconds`."""

    async def loop(client: Client, call: Callable[[Client], Awaitable[None]]) -> None:
        while True:
            await call(client)

    def read() -> dict[bool, Received]:
        with open_sync_channel(stack.scheduler) as channel:
            return received(Admin(stack.scheduler, channel, stack.secret))

    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(
            workers=1,
            log_dir=Path(folder),
            model="fake",
            engine="fake",
            worker_args=[
                *("--engine", f"fake:{STEP_SECONDS}", "--kv-tokens", str(KV_TOKENS)),
                *("--policy", policy, "--admission", admission),
            ],
            gateway_args=["--throttle", "none"],
        )
        try:
            await asyncio.to_thread(stack.start)
            async with contextlib.AsyncExitStack() as clients:
                calling = []
                for users, call in ((NEIGHBOURS, use), (others.users, others.call)):
                    for user, parallel in users.items():
                        client = await clients.enter_async_context(Client(stack.gateway, user=user))
                        calling += [asyncio.create_task(loop(client, call)) for _ in range(parallel)]
                await asyncio.sleep(SETTLE_SECONDS)
                before = await asyncio.to_thread(read)
                await asyncio.sleep(seconds)
                after = await asyncio.to_thread(read)
                for task in calling:
                    task.cancel()
                await asyncio.gather(*calling, return_exceptions=True)
        finally:
            await asyncio.to_thread(stack.stop)
    return (
        after[True].given - before[True].given,
        after[False].given - before[False].given,
        after[False].charged - before[False].charged,
    )


async def table(policy: str, admission: str, seconds: float) -> None:
    """Print the table row by row."""
    print(f"{processor()}; commit {commit()}; policy {policy}, {admission} admission, {seconds:g} s each\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    alone = None
    for others in SCENES:
        three, given, charged = await measure(others, policy, admission, seconds)
        alone = alone or three
        print(f"| {others.what} | {three:,.0f} | {three / alone:.2f} | {given:,.0f} | {charged:,.0f} |", flush=True)


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.hoarding", description=__doc__)
    parser.add_argument("--policy", default="dlpm")
    parser.add_argument("--admission", default="reserve")
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    asyncio.run(table(args.policy, args.admission, args.seconds))


if __name__ == "__main__":
    main()
