"""Log-probabilities as chat completions and completions have them."""

import codecs
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from fairlead.v1 import common_pb2
from gateway.core.coalescer import OutputChunk

UTF8 = codecs.getincrementaldecoder("utf-8")
LEAST = -9999.0  # in place of minus infinity, which JSON does not have
# Returns the object that stands at `logprobs` of the next output of the call with this index.
Logprobs = Callable[[int, OutputChunk], dict[str, Any]]


def of_chat(index: int, chunk: OutputChunk) -> dict[str, Any]:
    """Return the log-probabilities of a chat completion's tokens."""
    tokens = cast("Sequence[common_pb2.TokenLogprobs]", chunk.logprobs)
    content = [
        {
            **_token(each.token, each.logprob),
            "top_logprobs": [_token(*likely) for likely in zip(each.top_tokens, each.top_logprobs, strict=False)],
        }
        for each in tokens
    ]
    return {"content": content, "refusal": None}


class TextLogprobs:
    """The log-probabilities of a completion's tokens, which say where in its text each token begins.

    A token that is a part of a character begins where the character does.
    Those of the prompt, if they were requested, stand before those of the output; the first token has none.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}  # by index: length of the text so far
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}  # by index: tokens may be parts of characters

    def __call__(self, index: int, chunk: OutputChunk) -> dict[str, Any]:
        """Return the log-probabilities of the next tokens of a call."""
        tokens = cast("Sequence[common_pb2.TokenLogprobs]", [*chunk.prompt_logprobs, *chunk.logprobs])
        unknown = 1 if chunk.prompt_logprobs else 0
        decoder = self._decoders.setdefault(index, UTF8(errors="replace"))
        offsets, offset = [], self._offsets.get(index, 0)
        for each in tokens:
            offsets.append(offset)
            offset += len(decoder.decode(each.token))
        self._offsets[index] = offset
        return {
            "tokens": [_text(each.token) for each in tokens],
            "token_logprobs": [None] * unknown + [_finite(each.logprob) for each in tokens[unknown:]],
            "top_logprobs": [None] * unknown + [_top(each) for each in tokens[unknown:]],
            "text_offset": offsets,
        }


def prompt_text(chunk: OutputChunk) -> str:
    """Return the text of the prompt's tokens, if their log-probabilities were requested."""
    prompt = cast("Sequence[common_pb2.TokenLogprobs]", chunk.prompt_logprobs)
    return b"".join([each.token for each in prompt]).decode(errors="replace")


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
