"""The client of OpenAI's HTTP API through which every system is called."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from lab.bench.flood.call import CallFailed, ObservedCall
from lab.bench.flood.workload import Asked

TOO_MANY = 429
PAUSE_SECONDS = 1.0  # before a refused call is repeated, unless the answer says otherwise
EVENT = b"data: "


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a system's API; each user's API key is its name, and `fields` are added to its requests."""

    url: str
    model: str
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[Callable[[], "CallClient"]]:
    """Yield a function that makes clients with common connections, until the end of the block."""
    # Uvicorn ends connections that are idle for 5 s: a call that reuses one at this moment would fail.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
    forever = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=forever) as session:
        yield lambda: CallClient(session, endpoint)


class CallClient:
    """Sends calls to an endpoint; see lab.bench.flood.trial.Caller."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        self._session = session
        self._endpoint = endpoint
        self.calls: list[ObservedCall] = []

    async def call(self, user: str, asked: Asked) -> ObservedCall:
        """Return the finished call; repeats it while it is refused for its rate. Raises CallFailed."""
        call = ObservedCall(user, _now())
        self.calls.append(call)
        while not call.done:
            await self._attempt(call, asked)
        return call

    async def _attempt(self, call: ObservedCall, asked: Asked) -> None:
        # Without the second header Fairlead puts several tokens into an event, when it sends them at the same time.
        headers = {"authorization": f"Bearer {call.user}", "x-fairlead-streaming": "each_token"}
        url, body = f"{self._endpoint.url}/completions", self._body(call.user, asked)
        async with self._session.post(url, json=body, headers=headers) as response:
            if response.status == TOO_MANY:
                call.refused += 1
                await asyncio.sleep(float(response.headers.get("retry-after", PAUSE_SECONDS)))
                return
            if response.status != 200:
                raise CallFailed(f"{call.user}: status {response.status}: {(await response.text())[:500]}")
            async for line in response.content:
                if line.startswith(EVENT):
                    call.observe(line.removeprefix(EVENT).strip(), _now())
        if not call.done:
            raise CallFailed(f"{call.user}: the stream ended after {len(call.tokens_at)} parts")

    def _body(self, user: str, asked: Asked) -> dict[str, Any]:
        return {
            "model": self._endpoint.model,
            "prompt": asked.prompt,
            "max_tokens": asked.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": user,
            **self._endpoint.fields.get(user, {}),
        }


def _now() -> float:
    return asyncio.get_running_loop().time()
