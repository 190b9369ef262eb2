"""Log-probabilities as chat completions and completions have them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fairlead.v1 import common_pb2

LEAST = -9999.0  # in place of minus infinity, which JSON does not have
# Of the call with this index, and what was written of it last: the object that stands at `logprobs` of its next tokens.
Logprobs = Callable[[int, Sequence[common_pb2.TokenLogprobs]], dict[str, Any]]


def of_chat(index: int, tokens: Sequence[common_pb2.TokenLogprobs]) -> dict[str, Any]:
    """Return the log-probabilities of a chat completion's tokens."""
    content = [
        {
            **_token(each.token, each.logprob),
            "top_logprobs": [_token(*likely) for likely in zip(each.top_tokens, each.top_logprobs, strict=False)],
        }
        for each in tokens
    ]
    return {"content": content, "refusal": None}


class TextLogprobs:
    """The log-probabilities of a completion's tokens, which say where in its text each token begins."""

    def __init__(self, echoed: Sequence[str]) -> None:
        """Begin after the texts `echoed` of each call, if there are any."""
        self._offsets = {index: len(text) for index, text in enumerate(echoed)}

    def __call__(self, index: int, tokens: Sequence[common_pb2.TokenLogprobs]) -> dict[str, Any]:
        """Return the log-probabilities of the next tokens of a call."""
        texts = [_text(each.token) for each in tokens]
        offsets, offset = [], self._offsets.get(index, 0)
        for text in texts:
            offsets.append(offset)
            offset += len(text)
        self._offsets[index] = offset
        return {
            "tokens": texts,
            "token_logprobs": [_finite(each.logprob) for each in tokens],
            "top_logprobs": [_top(each) for each in tokens],
            "text_offset": offsets,
        }


def _top(token: common_pb2.TokenLogprobs) -> dict[str, float]:
    """Return the most likely tokens by their texts; of two tokens with one text, the more likely one."""
    top: dict[str, float] = {}
    for likely, logprob in zip(token.top_tokens, token.top_logprobs, strict=False):
        top.setdefault(_text(likely), _finite(logprob))
    return top


def _token(token: bytes, logprob: float) -> dict[str, Any]:
    return {"token": _text(token), "logprob": _finite(logprob), "bytes": list(token)}


def _text(token: bytes) -> str:
    return token.decode(errors="replace")


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST
