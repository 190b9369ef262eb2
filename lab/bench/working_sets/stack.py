"""Agents' sessions at overload on real processes with the built-in model, with admission by working sets and without.

    python -m lab.bench.working_sets.stack [--seconds 240] [--per-minute 12] [--throttle oit:100000,none]

A gateway, a scheduler and a worker on the CPU. Agents of two users begin at random times, the same in each run. Each
makes eight calls; a call's prompt is the one before, its answer and the output of a tool, which takes a second. A
refused first call comes again when the refusal says. An interaction that has not finished at the end does not count.
Tokens that count as computed again were in an earlier prompt or answer of the same interaction.
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from cli.stack import Stack
from fairlead import Client
from fairlead.errors import Retryable
from fairlead.interaction import Interaction
from lab.bench.machine import commit, processor
from serving.model_name import BUILT_IN
from serving.statistics import percentile

USERS = 2
TURNS = 8
FIRST_TOKENS, TOOL_TOKENS, ANSWER_TOKENS = 160, 80, 8
TOOL_SECONDS = 1.0
KV_TOKENS = 4096  # of which each session takes 776 in the end
BLOCK_TOKENS = 16
WORDS = range(32, 250)  # token ids that every model has


@dataclass(slots=True)
class Figures:
    """What one run gave: sessions that finished, calls, tokens, and the seconds to each first token."""

    finished: int = 0
    calls: int = 0
    refused: int = 0
    computed: int = 0
    again: int = 0
    first_tokens: list[float] = field(default_factory=list)


async def call(interaction: Interaction, prompt: list[int], figures: Figures) -> list[int]:
    """Return the answer to one call; a refused one comes again."""
    while True:
        began = time.monotonic()
        answer, first = list[int](), 0.0
        try:
            stream = interaction.stream(prompt, max_tokens=ANSWER_TOKENS, ignore_eos=True, each_token=True)
            async for chunk in stream:
                first = first or time.monotonic() - began
                answer += chunk.token_ids
            usage = (await stream.wait()).usage
        except Retryable as refusal:
            figures.refused += 1
            await asyncio.sleep(refusal.retry_after)
            continue
        figures.calls += 1
        figures.first_tokens.append(first)
        known = (len(prompt) - TOOL_TOKENS) // BLOCK_TOKENS * BLOCK_TOKENS if len(prompt) > FIRST_TOKENS else 0
        figures.computed += usage.prompt_tokens - usage.cached_tokens
        figures.again += max(0, known - usage.cached_tokens)
        return answer


async def session(client: Client, seed: int, figures: Figures) -> None:
    """Follow one agent through its calls."""
    dice = Random(seed)
    prompt = dice.choices(WORDS, k=FIRST_TOKENS)
    async with client.interaction() as interaction:
        for turn in range(TURNS):
            answer = await call(interaction, prompt, figures)
            if turn < TURNS - 1:
                await asyncio.sleep(TOOL_SECONDS)
            prompt = [*prompt, *answer, *dice.choices(WORDS, k=TOOL_TOKENS)]
    figures.finished += 1


async def run(throttle: str, per_minute: float, seconds: float, engine: str = "transformers") -> Figures:
    """Start agents on a stack of its own for `seconds`, and return what they had by then."""
    figures, dice = Figures(), Random(1)
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(
            workers=1,
            log_dir=Path(folder),
            model=BUILT_IN,
            engine=engine,
            worker_args=["--kv-tokens", str(KV_TOKENS)],
            gateway_args=["--throttle", throttle],
        )
        try:
            await asyncio.to_thread(stack.start)
            async with contextlib.AsyncExitStack() as clients:
                made = (Client(stack.gateway, user=f"user-{number}") for number in range(USERS))
                users = [await clients.enter_async_context(client) for client in made]
                await users[0].generate(list(WORDS[:FIRST_TOKENS]), max_tokens=1)  # the first step of a process is slow
                agents, end = list[asyncio.Task[None]](), time.monotonic() + seconds
                while (pause := dice.expovariate(per_minute / 60)) < end - time.monotonic():
                    await asyncio.sleep(pause)
                    number = len(agents)
                    agents.append(asyncio.create_task(session(users[number % USERS], number, figures)))
                await asyncio.sleep(end - time.monotonic())
                for agent in agents:
                    agent.cancel()
                await asyncio.gather(*agents, return_exceptions=True)
        finally:
            stack.stop()
    return figures


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.working_sets.stack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--per-minute", type=float, default=12.0, help="agents that begin (default: %(default)s)")
    parser.add_argument("--throttle", default="oit:100000,none", help="throttles, in turn (default: %(default)s)")
    args = parser.parse_args()
    print(f"commit {commit()}, {processor()}, {args.per_minute:g} agents per minute for {args.seconds:g} s\n")
    print("| throttle | finished/min | calls | tokens computed | again | first token p50 / p99, s | refused |")
    print("|---|---|---|---|---|---|---|")
    for throttle in args.throttle.split(","):
        figures = asyncio.run(run(throttle, args.per_minute, args.seconds))
        first = " / ".join(f"{percentile(figures.first_tokens, part):.2f}" for part in (50, 99))
        rate, tokens = 60 * figures.finished / args.seconds, f"{figures.computed:,} | {figures.again:,}"
        print(f"| `{throttle}` | {rate:.1f} | {figures.calls} | {tokens} | {first} | {figures.refused} |", flush=True)


if __name__ == "__main__":
    main()
