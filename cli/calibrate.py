"""`fairlead calibrate`: time a running worker and write the profile that `simulate --profile` reads."""

import argparse
import asyncio
import random
import time
from pathlib import Path

from cli.target import add_gateway_options, gateway
from fairlead.client import Client
from fairlead.errors import InvalidRequest, TooLong
from simulation.calibration import Timing, fit

ROUNDS = 3
SHORT, LONGEST = 16, 4096
BESIDE = (2, 4, 8)
LEAST_OUTPUT, LEAST_LENGTHS = 2, 2  # slopes need two points
LOWEST_ID, HIGHEST_ID = 10, 200  # token ids that exist in every tokenizer


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("calibrate", help="time a running worker for the simulator")
    add_gateway_options(parser)
    parser.add_argument(
        "--max-tokens", type=int, default=128, help="output tokens of each timed call (default: %(default)s)"
    )
    parser.add_argument(
        "--kv-tokens", type=int, required=True, help="size of the worker's KV cache in tokens, see its log"
    )
    parser.add_argument(
        "--token-budget", type=int, default=256, help="the worker's token budget per step (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("profile.json"), help="profile to write (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure the worker and write the profile. The stack must have one worker and no other load."""
    _check(args)
    timings = asyncio.run(_measure(args))
    measured = fit(timings, args.kv_tokens, args.token_budget)
    measured.write(args.out)
    of = measured.coefficients
    print(f"{len(timings)} calls timed; profile: {args.out}")
    print(f"step {of.step * 1e3:.2f} ms, per sequence {of.sequence * 1e3:.3f} ms")
    print(f"per prompt token {of.token * 1e6:.1f} us, per token of context {of.context * 1e6:.3f} us")
    return 0


def _check(args: argparse.Namespace) -> None:
    for name, least in (("max_tokens", LEAST_OUTPUT), ("kv_tokens", 1), ("token_budget", 1)):
        if getattr(args, name) < least:
            raise InvalidRequest(f"must be {least} or more, got {getattr(args, name)}", name)


async def _measure(args: argparse.Namespace) -> list[Timing]:
    timings: list[Timing] = []
    async with Client(gateway(args), api_key=args.api_key, user=args.user, app=args.app) as client:
        if not await client.models():
            raise InvalidRequest("no model is served: check that a worker runs")
        await _together(client, args, SHORT, 1)  # the first call may load or compile something
        for _ in range(ROUNDS):
            timings += await _alone(client, args)
            for beside in BESIDE:
                timings += await _together(client, args, SHORT, beside)
    return timings


async def _alone(client: Client, args: argparse.Namespace) -> list[Timing]:
    """Time single calls with prompts of growing lengths, up to the model's limit."""
    timings: list[Timing] = []
    length = SHORT
    while length <= LONGEST:
        try:
            timings += await _together(client, args, length, 1)
        except TooLong as error:
            if len(timings) < LEAST_LENGTHS:
                raise InvalidRequest(f"calibration needs {LEAST_LENGTHS} prompt lengths, but {error}") from error
            break
        length *= 4
    return timings


async def _together(client: Client, args: argparse.Namespace, length: int, beside: int) -> list[Timing]:
    return await asyncio.gather(*(_one(client, args, length, beside) for _ in range(beside)))


async def _one(client: Client, args: argparse.Namespace, length: int, beside: int) -> Timing:
    """Time one call, with a prompt that no cache holds."""
    prompt = [random.randint(LOWEST_ID, HIGHEST_ID) for _ in range(length)]
    began = time.perf_counter()
    first, tokens = began, 0
    options = {"max_tokens": args.max_tokens, "ignore_eos": True, "each_token": True}
    async for chunk in client.stream(prompt, **options):
        if not tokens:
            first = time.perf_counter()
        tokens += len(chunk.token_ids)
    each = (time.perf_counter() - first) / max(tokens - 1, 1)
    return Timing(length, tokens, beside, first - began, each)
