"""Tokens gathered into messages: a message to a client costs about 50 us, however many tokens it carries."""

from collections.abc import Sequence

from fairlead.v1 import common_pb2, inference_pb2

TOKENS = 4
SECONDS = 0.04


class Coalescer:
    """The first token goes at once, then `tokens` of them per message, none held longer than SECONDS."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._wanted = 1
        self._text: list[str] = []
        self._ids: list[bytes] = []
        self._logprobs: list[common_pb2.TokenLogprobs] = []
        self._count = 0
        self.due: float | None = None  # when what is held must go; None: nothing is held

    def add(self, token_ids: bytes, text: str, now: float, logprobs: Sequence[common_pb2.TokenLogprobs] = ()) -> None:
        """Hold some more output; `logprobs` one per token, or none."""
        if self.due is None:
            self.due = now + SECONDS
        self._count += len(token_ids) // 4
        self._ids.append(token_ids)
        self._text.append(text)
        self._logprobs += logprobs

    def ready(self, now: float) -> bool:
        """Whether what is held should go now."""
        return self.due is not None and (self._count >= self._wanted or now >= self.due)

    def take(self) -> inference_pb2.TokenChunk:
        """One message: everything held, but a token that is to go at once goes alone."""
        count = 1 if self._wanted == 1 else len(self._ids)
        ids, self._ids = self._ids[:count], self._ids[count:]
        text, self._text = self._text[:count], self._text[count:]
        logprobs, self._logprobs = self._logprobs[:count], self._logprobs[count:]
        self._count = sum(len(held) for held in self._ids) // 4
        self._wanted = self._tokens
        if not self._ids:
            self.due = None
        packed = common_pb2.TokenIds(packed=b"".join(ids))
        return inference_pb2.TokenChunk(text="".join(text), token_ids=packed, logprobs=logprobs)
