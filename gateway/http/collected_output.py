"""The output of a call whose caller gets it as a whole, in little memory, until it is complete."""

from collections.abc import Iterable
from typing import cast

import msgspec

from gateway.core.coalescer import OutputChunk
from gateway.http.logprobs import TextToken

TEXT = 64  # bytes that a text takes beside its characters
TOKEN = 128  # bytes that the log-probabilities of a token take beside their JSON


class CollectedOutput:
    """Keeps the texts and the log-probabilities of chunks that an answer has made compact."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._logprobs: list[object] = []
        self._prompt_logprobs: list[object] = []

    def add(self, chunk: OutputChunk) -> int:
        """Keep the next chunk, and return the bytes that are kept of it."""
        self._texts.append(chunk.text)
        self._logprobs += chunk.logprobs
        self._prompt_logprobs += chunk.prompt_logprobs
        return TEXT + len(chunk.text) + _size(chunk.logprobs) + _size(chunk.prompt_logprobs)

    def whole(self) -> OutputChunk:
        """Return what is kept as one chunk, without token ids."""
        return OutputChunk(b"", "".join(self._texts), self._logprobs, self._prompt_logprobs)


def _size(logprobs: Iterable[object]) -> int:
    tokens = cast("Iterable[msgspec.Raw | TextToken]", logprobs)
    texts = (token if isinstance(token, msgspec.Raw) else token.top for token in tokens)
    return sum(TOKEN + (0 if text is None else memoryview(text).nbytes) for text in texts)
