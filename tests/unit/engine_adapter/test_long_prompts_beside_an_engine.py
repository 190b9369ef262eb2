"""Long prompts at an engine that is not ours: what they cost a user with short ones, and what limits that."""

import asyncio
import time
from pathlib import Path
from statistics import median

import pytest

from fairlead import Client
from tests.fakes.served_engine.process import EngineProcess
from tests.services import Stack

pytestmark = pytest.mark.e2e
LONG, SHORT, CALLS = 380, 8, 12  # characters, which are tokens
BUDGET = 64
WARNING = "a long prompt at the engine delays all users"


def waits_beside_long_prompts(directory: Path, threshold: int, prefix_caching: int) -> tuple[list[float], str]:
    """The seconds to the first token of a quiet user's calls, at such an engine, and the adapter's log."""
    directory.mkdir()
    engine = EngineProcess(
        directory / "engine.log",
        events=False,
        blocks=257,
        budget=BUDGET,
        step_seconds=0.04,
        tells_settings=1,
        long_prefill_token_threshold=threshold,
        prefix_caching=prefix_caching,
    )
    stack = Stack(directory)
    try:
        stack.adapter("w", engine=engine.address, token_budget=BUDGET, max_running=8)
        waits = asyncio.run(contend(stack.gateway(throttle="none").address))
        return waits, stack.workers["w"].log
    finally:
        stack.close()
        engine.kill()


async def contend(gateway: str) -> list[float]:
    """Two users keep six long prompts open each; a third one makes CALLS short calls one after the other."""

    async def flood(client: Client, number: int) -> None:
        for call in range(1000):
            await client.generate(f"{number:02}{call:04}{'x' * LONG}"[:LONG], max_tokens=2, ignore_eos=True)

    waits = []
    async with Client(gateway, user="a") as a, Client(gateway, user="b") as b, Client(gateway, user="quiet") as quiet:
        await a.generate("warm", max_tokens=1)
        floods = [asyncio.create_task(flood(client, number)) for number in range(6) for client in (a, b)]
        for call in range(CALLS):
            began = time.monotonic()
            async with quiet.stream(f"{call:<{SHORT}}", max_tokens=2, ignore_eos=True, each_token=True) as stream:
                async for _ in stream:
                    break
            waits.append(time.monotonic() - began)
        for task in floods:
            task.cancel()
        await asyncio.gather(*floods, return_exceptions=True)
    return waits


def test_an_engine_with_parts_or_prefixes_delays_short_prompts_much_less_and_another_is_named(tmp_path: Path) -> None:
    whole, named = waits_beside_long_prompts(tmp_path / "whole", 0, 0)
    parts, quiet = waits_beside_long_prompts(tmp_path / "parts", BUDGET // 4, 0)
    chain, quiet_too = waits_beside_long_prompts(tmp_path / "chain", 0, 1)
    print(*(f"{median(waits):.3f} {max(waits):.3f}" for waits in (whole, parts, chain)), sep="; ")
    assert median(parts) < 0.6 * median(whole)
    assert median(chain) < 0.6 * median(whole)
    assert WARNING in named
    assert "vllm serve --long-prefill-token-threshold 16" in named
    assert WARNING not in quiet + quiet_too
