"""Log-probabilities as chat completions and completions have them."""

import codecs
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from fairlead.v1 import common_pb2
from gateway.core.call_events import OutputChunk

UTF8 = codecs.getincrementaldecoder("utf-8")
LEAST = -9999.0  # in place of minus infinity, which JSON does not have


class Logprobs(Protocol):
    """The log-probabilities of one request's answer.

    As a worker sends them they take many times the memory of their JSON, so that what is held is compact.
    """

    def compact(self, index: int, chunk: OutputChunk) -> OutputChunk:
        """Return the next output of the call with this index, with log-probabilities as `report` takes them."""

    def report(self, chunk: OutputChunk) -> dict[str, Any]:
        """Return the object that stands at `logprobs` of a compact chunk, or of several that were joined."""


class ChatLogprobs:
    """The log-probabilities of a chat completion's tokens."""

    def compact(self, index: int, chunk: OutputChunk) -> OutputChunk:
        """See Logprobs. A token becomes its JSON."""
        tokens = cast("Sequence[common_pb2.TokenLogprobs]", chunk.logprobs)
        return chunk._replace(logprobs=[msgspec.Raw(msgspec.json.encode(_described(each))) for each in tokens])

    def report(self, chunk: OutputChunk) -> dict[str, Any]:
        """See Logprobs."""
        return {"content": chunk.logprobs, "refusal": None}


class TextToken(NamedTuple):
    """A token of a completion, and where in the completion's text it begins; the first of a prompt is not likely."""

    text: str
    logprob: float | None
    top: msgspec.Raw | None  # JSON
    offset: int


class TextLogprobs:
    """The log-probabilities of a completion's tokens, which say where in its text each token begins.

    A token that is a part of a character begins where the character does.
    Those of the prompt, if they were requested, stand before those of the output; the first token has none.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}  # by index: length of the text so far
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}  # by index: tokens may be parts of characters

    def compact(self, index: int, chunk: OutputChunk) -> OutputChunk:
        """See Logprobs. A token becomes a TextToken."""
        prompt = [*self._tokens(index, chunk.prompt_logprobs)]
        if prompt:
            prompt[0] = prompt[0]._replace(logprob=None, top=None)
        return chunk._replace(prompt_logprobs=prompt, logprobs=[*self._tokens(index, chunk.logprobs)])

    def report(self, chunk: OutputChunk) -> dict[str, Any]:
        """See Logprobs."""
        tokens = cast("Sequence[TextToken]", [*chunk.prompt_logprobs, *chunk.logprobs])
        return {
            "tokens": [each.text for each in tokens],
            "token_logprobs": [each.logprob for each in tokens],
            "top_logprobs": [each.top for each in tokens],
            "text_offset": [each.offset for each in tokens],
        }

    def _tokens(self, index: int, logprobs: Sequence[object]) -> Iterator[TextToken]:
        decoder = self._decoders.setdefault(index, UTF8(errors="replace"))
        for each in cast("Sequence[common_pb2.TokenLogprobs]", logprobs):
            offset = self._offsets.get(index, 0)
            self._offsets[index] = offset + len(decoder.decode(each.token))
            top = msgspec.Raw(msgspec.json.encode(_top(each)))
            yield TextToken(_text(each.token), _finite(each.logprob), top, offset)


def prompt_text(chunk: OutputChunk) -> str:
    """Return the text of the prompt's tokens, if their log-probabilities were requested."""
    prompt = cast("Sequence[common_pb2.TokenLogprobs]", chunk.prompt_logprobs)
    return b"".join([each.token for each in prompt]).decode(errors="replace")


def _described(token: common_pb2.TokenLogprobs) -> dict[str, Any]:
    likely = [_token(*each) for each in zip(token.top_tokens, token.top_logprobs, strict=False)]
    return {**_token(token.token, token.logprob), "top_logprobs": likely}


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
