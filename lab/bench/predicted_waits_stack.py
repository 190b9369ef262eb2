"""How many predicted waits are close on real processes, as the gateway itself counts them.

    python -m lab.bench.predicted_waits_stack [flooded] [overloaded] [--seconds 30]

A gateway, a scheduler and a worker with the fake engine, whose steps take 100 ms and have 32 places. Users call at
random times, whatever happens to their calls, with random prompts of 500 tokens and outputs of random lengths, in the
proportions of `lab.bench.predicted_waits`. Calls come until those of the first SECONDS have ended; then the others are
cancelled.
"""

import argparse
import asyncio
import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random

from cli.admin import account
from cli.stack import Stack
from fairlead import Client
from fairlead.errors import FairleadError
from fairlead.retries import Retries
from lab.bench.machine import commit, processor
from lab.bench.predicted_waits import RATES, SATURATING

STEP_SECONDS, PLACES = 0.1, 32
PROMPT, OUTPUT = 500, 40  # tokens of a prompt; mean tokens of an output
TOKEN_BYTES = 4  # of the fake engine
SIZES = ["--max-running", f"{PLACES}", "--token-budget", "2048", "--kv-tokens", "200000", "--quantum-tokens", "512"]
MOST_OPEN = 32_768  # calls, of which one user may have a sixteenth
CAPACITY = PLACES / (OUTPUT * STEP_SECONDS)  # calls per second that the worker serves


class Users:
    """The users of a gateway; `rates` are calls per second of each."""

    def __init__(self, address: str, rates: Mapping[str, float]) -> None:
        self._clients = {name: Client(address, user=name, retries=Retries(attempts=0)) for name in rates}
        self._rates = rates
        self._failed = 0

    async def call(self, seconds: float) -> int:
        """Make calls until those of the first `seconds` have ended; return how many failed."""
        draw, counting, others = Random(1), list[asyncio.Task[None]](), list[asyncio.Task[None]]()
        clock = asyncio.get_running_loop().time
        began = at = clock()
        async with contextlib.AsyncExitStack() as stack:
            for client in self._clients.values():
                await stack.enter_async_context(client)
            while clock() < began + seconds or not all(task.done() for task in counting):
                at += draw.expovariate(sum(self._rates.values()))
                [name] = draw.choices(list(self._rates), list(self._rates.values()))
                tokens = max(1, round(draw.expovariate(1 / OUTPUT)))
                await asyncio.sleep(max(0.0, at - clock()))
                prompt = "".join(chr(draw.randrange(97, 123)) for _ in range(PROMPT * TOKEN_BYTES))
                task = asyncio.create_task(self._ask(self._clients[name], prompt, tokens))
                (counting if at < began + seconds else others).append(task)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        return self._failed

    async def _ask(self, client: Client, prompt: str, tokens: int) -> None:
        try:
            await client.generate(prompt, max_tokens=tokens, ignore_eos=True)
        except FairleadError:
            self._failed += 1


async def row(name: str, seconds: float) -> str:
    """Return a row of the table."""
    rates = {user: rate * CAPACITY / SATURATING for user, rate in RATES[name].items()}
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(
            workers=1,
            log_dir=Path(folder),
            model="tiny",
            engine=f"fake:{STEP_SECONDS},{TOKEN_BYTES}",
            worker_args=SIZES,
            gateway_args=["--throttle", "none", "--max-streams", str(MOST_OPEN)],
        )
        try:
            await asyncio.to_thread(stack.start)
            failed = await Users(stack.gateway, rates).call(seconds)
            told = await asyncio.to_thread(account, stack.gateway, stack.secret)
        finally:
            await asyncio.to_thread(stack.stop)
    return f"| {name} | {told.close_predictions / told.predictions:.0%} of {told.predictions} | {failed} |"


async def table(names: list[str], seconds: float) -> None:
    """Print the table row by row, in one event loop, because gRPC's poller supports only one."""
    print(f"commit {commit()}, {processor()}")
    print("| clients | close | failed |\n|---|---|---|")
    for name in names:
        print(await row(name, seconds), flush=True)


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.predicted_waits_stack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("clients", nargs="*", default=["flooded"], help=f"{', '.join(RATES)} (default: flooded)")
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    if unknown := [name for name in args.clients if name not in RATES]:
        parser.error(f"expected some of {', '.join(RATES)}, got {', '.join(unknown)}")
    asyncio.run(table(args.clients, args.seconds))


if __name__ == "__main__":
    main()
