"""One call of each kind of neighbour, and the texts that they send.

A token of a prompt is a word of three letters and a space: four bytes, which a token of the fake engine stands for, and
one token of a real tokenizer.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import count
from urllib.parse import urlsplit

from fairlead import Client, Interaction
from fairlead.errors import Cancelled

# One for each digit. A token of the fake engine is the first of its bytes.
WORDS = ("sea", "map", "day", "way", "top", "car", "boy", "end", "god", "run")
LEAST_TOKENS = 16
NUMBERS = count()


def text(tokens: int) -> str:
    """Return a text of so many tokens, at least LEAST_TOKENS, whose beginning no other text has."""
    digits = f"{os.getpid():07d}{next(NUMBERS):08d}"
    return "".join(f"{WORDS[int(digit)]} " for digit in digits.ljust(tokens, "0"))


def common_text(tokens: int) -> str:
    """Return a text of so many tokens, which is always the same."""
    return "ice " * tokens


@dataclass(frozen=True, slots=True)
class Caller:
    """What a call is made with: a client of one user, an interaction of it, and the HTTP address with the key."""

    client: Client
    interaction: Interaction
    http: str
    key: str

    def post(self, path: str, body: bytes) -> None:
        """Send a body over HTTP and read the answer, whatever it is. To be called on a thread."""
        where = urlsplit(self.http)
        connection = HTTPConnection(where.hostname or "", where.port, timeout=60)
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        try:
            with contextlib.suppress(HTTPException, OSError):  # the gateway may hang up on what it refuses
                connection.request("POST", path, body, headers)
                connection.getresponse().read()
        finally:
            connection.close()


Call = Callable[[Caller], Awaitable[None]]


def generates(prompt: int, output: int, common: int = 0) -> Call:
    """Return a call with this many tokens; `common` ones are the beginning of every prompt."""
    prefix = common_text(common)

    async def call(caller: Caller) -> None:
        await caller.client.generate(prefix + text(prompt - common), max_tokens=output, ignore_eos=True)

    return call


def alternates(*calls: Call) -> Call:
    """Return a call that is each of `calls` in turn."""
    turns = count()

    async def call(caller: Caller) -> None:
        await calls[next(turns) % len(calls)](caller)

    return call


def of_an_agent(prompt: int, output: int, common: int) -> Call:
    """Return a call of an agent's interaction, all of which begin with `common` tokens."""
    prefix = common_text(common)

    async def call(caller: Caller) -> None:
        await caller.interaction.generate(prefix + text(prompt - common), max_tokens=output, ignore_eos=True)

    return call


def hangs_up(prompt: int, output: int, after: int) -> Call:
    """Return a call that is cancelled after this many tokens."""

    async def call(caller: Caller) -> None:
        tokens = 0
        stream = caller.client.stream(text(prompt), max_tokens=output, ignore_eos=True, each_token=True)
        with contextlib.suppress(Cancelled):
            async with stream:
                async for chunk in stream:
                    tokens += len(chunk.token_ids)
                    if tokens >= after:
                        break

    return call


def reads_slowly(prompt: int, output: int, seconds: float) -> Call:
    """Return a call that waits so long after each part of the output that it reads."""

    async def call(caller: Caller) -> None:
        async with caller.client.stream(text(prompt), max_tokens=output, ignore_eos=True, each_token=True) as stream:
            async for _ in stream:
                await asyncio.sleep(seconds)

    return call


def constrained(output: int) -> Call:
    """Return a call whose constraint takes long to compile, or whose masks take longer than a step."""
    turns = count()
    rules = [f'r{number}: e e "a" | e' for number in range(60)]
    ambiguous = "\n".join(["start: e", 'e: "b" | ' + " | ".join(f"r{number}" for number in range(60)), *rules])

    def excessive(number: int) -> str:
        names = [[f"^{number}w{part}{key:03d}[a-z]{{1,20}}$" for key in range(40)] for part in range(20)]
        parts = [{"patternProperties": dict.fromkeys(each, True)} for each in names]
        return json.dumps({"allOf": parts})

    async def call(caller: Caller) -> None:
        number = next(turns)
        if number % 2:
            await caller.client.generate(text(64), max_tokens=output, grammar=ambiguous)
        else:
            await caller.client.generate(text(64), max_tokens=output, json_schema=excessive(number))

    return call


def tokenizes(size: int) -> Call:
    """Return a call that has a text of `size` bytes tokenized, of letters that a tokenizer splits with difficulty."""
    worst = ("a" * (size // 2) + "a\u0301" * (size // 6))[:size]
    body = json.dumps({"prompt": worst}, ensure_ascii=False).encode()

    async def call(caller: Caller) -> None:
        await asyncio.to_thread(caller.post, "/tokenize", body)

    return call


def is_refused(size: int) -> Call:
    """Return a call with one of several bodies that are refused, the largest of `size` bytes."""
    bodies = (
        b"[" * size,
        b'{"messages": [' + b'{"role": "user", "content": 1},' * (size // 40) + b"]}",
        json.dumps({"messages": [{"role": "user", "content": "x" * size}], "temperature": 1000}).encode(),
        json.dumps({"prompt": "x" * size, "max_tokens": -1, "model": "none"}).encode(),
        b"\xff" * size,
    )
    turns = count()

    async def call(caller: Caller) -> None:
        await asyncio.to_thread(caller.post, "/v1/chat/completions", bodies[next(turns) % len(bodies)])

    return call
