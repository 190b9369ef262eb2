"""The demo's observer beside a real scheduler."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.demo.observation import Observation, observe
from tests.services import SECRET, Stack

pytestmark = pytest.mark.e2e


async def until(holds: Callable[[], bool], observer: asyncio.Task[None]) -> None:
    """Wait until `holds` is true; raise what ended the observer before."""
    while not holds():
        done, _ = await asyncio.wait({observer}, timeout=0.05)
        if done:
            observer.result()


async def test_observation_goes_on_after_calls_that_were_lost(tmp_path: Path) -> None:
    stack, observation = Stack(tmp_path), Observation()
    address = stack.scheduler.address
    try:
        observer = asyncio.create_task(observe(address, SECRET, observation))
        await until(lambda: len(observation.samples) > 1, observer)
        await asyncio.to_thread(stack.scheduler.kill)
        seen = len(observation.samples)
        await asyncio.wait({observer}, timeout=0.6)  # two polls find no scheduler
        await asyncio.to_thread(stack.start, "global_scheduler", listen=address)
        await until(lambda: len(observation.samples) > seen + 1, observer)
        observer.cancel()
    finally:
        stack.close()
