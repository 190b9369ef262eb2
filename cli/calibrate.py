"""`fairlead calibrate`: time a running worker, write the profile that `simulate --profile` takes."""

import argparse
import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

from cli.target import add_gateway_options, gateway
from fairlead.client import Client
from simulation.calibration import Timing, fit

ROUNDS = 3
SHORT, LONGEST = 16, 4096
BESIDE = (1, 2, 4, 8)
LOWEST_ID, HIGHEST_ID = 10, 200  # token ids that every tokenizer has


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("calibrate", help="time a running worker for the simulator")
    add_gateway_options(parser)
    parser.add_argument("--kv-tokens", type=int, required=True, help="what the worker's KV cache holds, as it logs")
    parser.add_argument("--out", type=Path, default=Path("profile.json"), help="default: %(default)s")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The stack should have one worker and nothing else to do."""
    timings = asyncio.run(_measure(args))
    measured = fit(timings, args.kv_tokens)
    measured.write(args.out)
    of = measured.coefficients
    print(f"{len(timings)} calls timed; profile: {args.out}")
    print(f"step {of.step * 1e3:.2f} ms, per sequence {of.sequence * 1e3:.3f} ms")
    print(f"per prompt token {of.token * 1e6:.1f} us, per token of context {of.context * 1e6:.3f} us")
    return 0


async def _measure(args: argparse.Namespace) -> list[Timing]:
    timings: list[Timing] = []
    async with Client(gateway(args), api_key=args.api_key, user=args.user, app=args.app) as client:
        room = (await client.models())[0].max_model_tokens - args.max_tokens
        await _together(client, args, SHORT, 1)  # the first call may load or compile something
        for _ in range(ROUNDS):
            for length in _lengths(min(room, LONGEST)):
                timings += await _together(client, args, length, 1)
            for beside in BESIDE[1:]:
                timings += await _together(client, args, SHORT, beside)
    return timings


def _lengths(room: int) -> Iterator[int]:
    length = SHORT
    while length <= room:
        yield length
        length *= 4


async def _together(client: Client, args: argparse.Namespace, length: int, beside: int) -> list[Timing]:
    return await asyncio.gather(*(_one(client, args, length, beside) for _ in range(beside)))


async def _one(client: Client, args: argparse.Namespace, length: int, beside: int) -> Timing:
    """A prompt that no cache holds."""
    prompt = [random.randint(LOWEST_ID, HIGHEST_ID) for _ in range(length)]
    began = time.perf_counter()
    first, tokens = began, 0
    options = {"max_tokens": args.max_tokens, "ignore_eos": True, "temperature": args.temperature}
    async for chunk in client.stream(prompt, **options):
        if not tokens:
            first = time.perf_counter()
        tokens += len(chunk.token_ids)
    each = (time.perf_counter() - first) / max(tokens - 1, 1)
    return Timing(length, beside, first - began, each)
