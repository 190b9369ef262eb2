"""A process's Prometheus metrics, as another process reads them over HTTP."""

import asyncio

from serving.http_client import HttpClient

CALL_SECONDS = 1.0
MOST_BYTES = 4 * 1024 * 1024  # of an answer


async def read_metrics(address: str, path: str) -> bytes:
    """Return the text at `path` of `address`, host:port.

    Raises OSError without a whole answer of at most MOST_BYTES within CALL_SECONDS, and ValueError for another status
    than 200.
    """
    async with asyncio.timeout(CALL_SECONDS), HttpClient(address).call("GET", path) as response:
        if response.status != 200:
            raise ValueError(f"{path} is answered with {response.status}")
        return await response.body(MOST_BYTES)
