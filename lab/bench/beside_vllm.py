"""A quiet user beside long prompts at a real `vllm serve`, behind an adapter: its threshold for them, or chains.

    python -m lab.bench.beside_vllm [--thresholds 0 64] [--seconds 90]

Two users keep three prompts of about 3,000 tokens open each. A third one asks for eight tokens every three seconds,
alone and then beside them. Without a threshold the adapter sends chains of growing prefixes. It runs in the environment
with vLLM (`make vllm-venv`).
"""

import argparse
import asyncio
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

from cli.stack import Stack
from fairlead import Client
from lab.bench.flood.engine import EngineSettings
from lab.bench.flood.phase import Phase
from lab.bench.flood.servers import vllm
from lab.bench.flood.trial import ask
from lab.bench.flood.workload import QUIET, WORDS, Workload
from lab.bench.machine import commit, processor
from lab.bench.neighbours.quiet import QuietUser
from serving.statistics import percentile

LONG_WORDS, OPEN_EACH, RAMP_SECONDS = 3000, 3, 8.0
WORK = Workload(quiet_every=3.0, quiet_prompt=32, quiet_answer=8)


async def _keep_open(client: Client, dice: random.Random, computed: list[int]) -> None:
    """Send one long prompt after the other, and note its tokens when it is answered."""
    while True:
        text = " ".join(dice.choice(WORDS) for _ in range(LONG_WORDS))
        computed.append((await client.generate(text, max_tokens=2, ignore_eos=True)).usage.prompt_tokens)


async def _ask(client: Client, phase: str, seconds: float) -> Phase:
    loop, user = asyncio.get_running_loop(), QuietUser(client, prefix="")
    began = loop.time()
    asking = asyncio.create_task(ask(user, WORK.questions(phase, seconds)))
    await asyncio.sleep(seconds)
    ended = loop.time()
    asking.cancel()
    await asyncio.wait([asking])
    return Phase(began, ended, user.calls)


def _waits(phase: Phase) -> str:
    waits = [(call.tokens_at[0] if call.tokens_at else phase.ended) - call.sent for call in phase.asked_by(QUIET)]
    return f"{percentile(waits, 50):.2f} / {percentile(waits, 99):.2f}"


async def measure(gateway: str, seconds: float) -> tuple[Phase, Phase, float]:
    """Return what the quiet user saw alone and beside the others, and their prompt tokens per second."""
    computed: list[int] = []
    async with Client(gateway, user="a") as a, Client(gateway, user="b") as b, Client(gateway, user=QUIET) as quiet:
        await _ask(quiet, "warm-up", 6.0)
        alone = await _ask(quiet, "alone", seconds / 3)
        users = [(client, number) for client in (a, b) for number in range(OPEN_EACH)]
        tasks = [
            asyncio.create_task(_keep_open(client, random.Random(repr((place, number))), computed))
            for place, (client, number) in enumerate(users)
        ]
        await asyncio.sleep(RAMP_SECONDS)
        computed.clear()
        beside = await _ask(quiet, "beside", seconds)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return alone, beside, sum(computed) / seconds


def row(threshold: int, seconds: float, folder: Path) -> str:
    """Run vLLM's server with a threshold, an adapter and a gateway; return a row of the table."""
    logs = folder / str(threshold)
    logs.mkdir(parents=True, exist_ok=True)
    sizes = EngineSettings(threads=os.cpu_count() or 1, context=4096, kv_tokens=32_768, long_prefill_tokens=threshold)
    with vllm(sizes, "fcfs", logs) as url:
        address = url.removeprefix("http://").removesuffix("/v1")
        stack = Stack(
            workers=1,
            log_dir=logs,
            engines=[["--engine", address]],
            worker_args=["--max-running", str(sizes.max_running), "--token-budget", str(sizes.token_budget)],
            gateway_args=["--throttle", "none"],
        )
        with stack:
            alone, beside, rate = asyncio.run(measure(stack.gateway, seconds))
    return f"| {threshold or 'none'} | {_waits(alone)} | {_waits(beside)} | {rate:.0f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.beside_vllm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--thresholds", type=int, nargs="+", default=[0, 64], help="0: none (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=90.0, help="beside the others (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("build/beside-vllm"), help="logs (default: %(default)s)")
    args = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: it ends the servers as well
    print(f"{processor()}, load {os.getloadavg()[0]:.1f}; commit {commit()}; {args.seconds:g} s each\n")
    print("| threshold | first token alone, p50 / p99, s | beside long prompts | their prompt tokens/s |")
    print("|---|---|---|---|")
    for threshold in args.thresholds:
        print(row(threshold, args.seconds, args.out), flush=True)


if __name__ == "__main__":
    main()
