"""The tokens of a prompt that several calls have, such as the choices of one request: it is tokenized once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fairlead.v1 import worker_pb2


class PromptEncoding:
    """The tokens of the calls that have one prompt; the first call that needs them has it tokenized."""

    def __init__(self) -> None:
        self._encoding: asyncio.Task[worker_pb2.EncodeResponse] | None = None
        self._waiting = 0  # number of calls

    async def get(
        self, encode: Callable[[], Coroutine[Any, Any, worker_pb2.EncodeResponse]]
    ) -> worker_pb2.EncodeResponse:
        """Return the tokens, which `encode` returns if no other call has begun it; raise its FairleadError.

        Tokenizing is cancelled when no call waits for it any more.
        """
        encoding = self._encoding = self._encoding or asyncio.create_task(encode())
        self._waiting += 1
        try:
            return await asyncio.shield(encoding)
        finally:
            self._waiting -= 1
            if not self._waiting and not encoding.done():
                encoding.cancel()
                self._encoding = None
