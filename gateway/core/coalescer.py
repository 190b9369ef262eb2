"""Coalescing of tokens into messages: a message to a caller costs about 50 us for any number of tokens."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.token_ids import TOKEN_BYTES

TOKENS = 4  # per message
SECONDS = 0.04  # longest time for which a token is held


class OutputChunk(NamedTuple):
    """Output for one message to the caller. It is a tuple because one is made for every few tokens."""

    token_ids: bytes  # packed
    text: str
    logprobs: Sequence[object]  # one per token, or none; this module does not read them

    @property
    def tokens(self) -> int:
        """The number of tokens; 0 for text that belongs to tokens sent earlier."""
        return len(self.token_ids) // TOKEN_BYTES


class Coalescer:
    """Collects output: the first token is sent at once, then `tokens` per message, none later than SECONDS."""

    def __init__(self, tokens: int) -> None:
        self.count = 0  # tokens held
        self.due: float | None = None  # time at which the held output must be sent; None: nothing is held
        self._tokens = tokens
        self._wanted = 1
        self._held: list[tuple[bytes, str, Sequence[object]]] = []  # token ids, text and logprobs in order of arrival

    def add(self, token_ids: bytes, text: str, now: float, logprobs: Sequence[object] = ()) -> None:
        """Hold the next output; `logprobs` has one entry per token, or none."""
        if self.due is None:
            self.due = now + SECONDS
        self.count += len(token_ids) // TOKEN_BYTES
        self._held.append((token_ids, text, logprobs))

    def ready(self, now: float) -> bool:
        """Return whether the held output should be sent now."""
        return self.due is not None and (self.count >= self._wanted or now >= self.due)

    def take(self) -> OutputChunk:
        """Remove and return the next message: all held output, or alone the token that must be sent at once."""
        taken = self._held[:1] if self._wanted == 1 else self._held
        self._held = self._held[len(taken) :]
        ids, texts, logprobs = zip(*taken, strict=True)
        chunk = OutputChunk(b"".join(ids), "".join(texts), [entry for entries in logprobs for entry in entries])
        self._wanted = self._tokens
        self.count -= chunk.tokens
        if not self._held:
            self.due = None
        return chunk
