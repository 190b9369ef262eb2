"""Names of models and LoRA adapters that nobody serves are looked up, and neither kept, opened nor shown at length."""

import asyncio
from collections import Counter

import pytest

from fairlead import Client, Retries
from fairlead.errors import FairleadError
from tests.attacks.conftest import KEY
from tests.attacks.honest import served
from tests.attacks.report import Memory, Report
from tests.services import Process

ABSURD = (
    "../../../../etc/passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "lora=../adapter",
    "a,b=c",
    "tiny\x00",
    "tiny\n{}",
    "\u202etiny",
    " tiny",
    "TINY",
    "*",
    "m" * 1_000_000,
    "../" * 300_000,
    "\U0001f30a" * 100_000,
)
MOST_SHOWN = 2_000  # characters of an error or a log line


async def refused(address: str, names: tuple[str, ...]) -> list[FairleadError]:
    """The errors of calls of models with these names, one after the other."""
    errors: list[FairleadError] = []
    async with Client(address, api_key=KEY, retries=Retries(attempts=0)) as client:
        for name in names:
            try:
                await client.generate("hello", model=name, max_tokens=1)
            except FairleadError as error:
                errors.append(error)
    return errors


@pytest.mark.parametrize("count", [2_000])
def test_models_that_nobody_serves(shared_gateway: Process, report: Report, count: int) -> None:
    asyncio.run(refused(shared_gateway.address, ABSURD[:1]))
    memory = Memory(gateway=shared_gateway)
    errors = asyncio.run(refused(shared_gateway.address, (*ABSURD, *(f"lora-{number}" for number in range(count)))))
    report.add("names of models that nobody serves", Counter(type(error).__name__ for error in errors), memory)
    assert len(errors) == len(ABSURD) + count
    assert max(len(error.message) for error in errors) < MOST_SHOWN
    assert memory.grown < 100, str(memory)
    assert max(map(len, shared_gateway.log.splitlines())) < MOST_SHOWN
    assert asyncio.run(served(shared_gateway.address)) == 2
