"""A caller who means no harm, and must not notice those who do."""

from fairlead import Client, Retries
from tests.system.attacks.conftest import KEY


async def served(address: str, calls: int = 2) -> int:
    """How many of its calls, one after the other, complete at the first try."""
    async with Client(address, api_key=KEY, retries=Retries(attempts=0)) as client:
        return len([await client.generate("hello", max_tokens=4) for _ in range(calls)])
