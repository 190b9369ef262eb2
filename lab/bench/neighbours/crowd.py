"""The process of one neighbour: it makes calls until it is stopped.

python -m lab.bench.neighbours.crowd NAME --longest-prompt TOKENS --gateway HOST:PORT --http URL --key KEY
"""

import argparse
import asyncio
import contextlib
import signal

from fairlead import Client, FairleadError
from lab.bench.neighbours.calls import Caller
from lab.bench.neighbours.neighbour import Neighbour, neighbours


async def crowd(neighbour: Neighbour, gateway: str, http: str, key: str) -> None:
    """Make the neighbour's calls until the task is cancelled."""
    async with contextlib.AsyncExitStack() as clients:
        callers = []
        for user in range(neighbour.users):
            client = await clients.enter_async_context(Client(gateway, api_key=key, user=f"user-{user}"))
            callers.append(Caller(client, client.interaction(), http, key))
        async with asyncio.TaskGroup() as group:
            for number in range(neighbour.open):
                group.create_task(_repeat(neighbour, callers[number % neighbour.users], number))


async def _repeat(neighbour: Neighbour, caller: Caller, number: int) -> None:
    """Make one call after the other, each `interval` after the one before or later."""
    loop = asyncio.get_running_loop()
    interval = neighbour.open / neighbour.per_second if neighbour.per_second else 0.0
    due = loop.time() + interval * number / neighbour.open
    while True:
        await asyncio.sleep(due - loop.time())
        with contextlib.suppress(FairleadError):  # an answer as any other
            await neighbour.call(caller)
        due = max(loop.time(), due + interval)


def main() -> None:
    """Run the neighbour; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.neighbours.crowd", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--longest-prompt", type=int, required=True)
    for option in ("--gateway", "--http", "--key"):
        parser.add_argument(option, required=True)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        [neighbour] = [each for each in neighbours(args.longest_prompt) if each.name == args.name]
        asyncio.run(crowd(neighbour, args.gateway, args.http, args.key))


if __name__ == "__main__":
    main()
