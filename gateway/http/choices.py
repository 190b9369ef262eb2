"""Choices of (chat) completions as bytes.

A chunk is put together of pieces that are made once for each answer: one is written for every few tokens, and a chunk
that is built of objects costs several times as much.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.call_events import OutputChunk
from gateway.http.api import Generation
from gateway.http.common_fields import SEEDS
from gateway.http.dialect import OPENAI
from gateway.http.logprobs import Logprobs, prompt_text
from gateway.http.parameters import Parameters
from gateway.http.sse import DONE, event
from gateway.prompt_encoding import PromptEncoding

NOTHING = OutputChunk(b"", "", ())
NO_LOGPROBS = b',"logprobs":null'
GOES_ON = b',"finish_reason":null}]'
REASONS: Mapping[FinishReason | None, bytes] = {FinishReason.STOP: b'"stop"', FinishReason.LENGTH: b'"length"'}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicesFormat:
    """The JSON in which chat completions and completions differ. A piece of text stands after `first` or `further`."""

    id: str
    whole: str  # the object's name
    chunk: str  # its name in a stream
    first: bytes
    further: bytes
    close: bytes
    last: bytes  # where no text is left
    choice: Callable[[str], dict[str, Any]]  # the text of a whole answer


def choices(prompt: common_pb2.Prompt, sampling: common_pb2.SamplingParams, number: int) -> list[Generation]:
    """Return the calls for `number` choices of a prompt. Of a given seed, each draws with one of its own."""
    encoding = PromptEncoding() if number > 1 else None
    return [Generation(prompt, _drawn(sampling, index), encoding) for index in range(number)]


def _drawn(sampling: common_pb2.SamplingParams, number: int) -> common_pb2.SamplingParams:
    if number == 0 or not sampling.HasField("seed"):
        return sampling
    other = common_pb2.SamplingParams()
    other.CopyFrom(sampling)
    other.seed = (sampling.seed + number) % SEEDS
    return other


class ChoicesAnswer:
    """Write choices; implements Answer. Each `choices` calls have the same prompt, whose tokens are counted once."""

    def __init__(
        self,
        form: ChoicesFormat,
        call: Call,
        asked: Parameters,
        echoed: Sequence[str | None],
        logprobs: Logprobs | None,
    ) -> None:
        self._form = form
        self._choices = asked.n or 1
        self._includes_usage = asked.includes_usage
        self._echoed = echoed  # each call's prompt, to stand before its output; None: known by its tokens
        self._prompts: dict[int, str] = {}  # by index: the prompt that stands before the output in a whole answer
        self._logprobs = logprobs
        self._named = {
            "id": f"{form.id}-{call.request_id}",
            "created": call.timings.received // 1_000_000_000,
            "model": call.model,
        }
        self._head = b"data: " + msgspec.json.encode({"object": form.chunk, **self._named})[:-1] + b',"choices":['
        self._tail = b',"usage":null}\n\n' if self._includes_usage else b"}\n\n"
        self._after_text = form.close + NO_LOGPROBS + GOES_ON
        self._counted: dict[int, int] | None = {} if asked.counts_tokens else None  # tokens by index
        self._further: dict[int, bytes] = {}  # by index: what stands before its further text

    def chunk(self, index: int, call: Call, chunk: OutputChunk) -> bytes:
        """See Answer."""
        tail = self._usage_so_far(index, call, chunk)
        if self._logprobs is None:
            return self._text(index, chunk) + self._after_text + tail
        return self._choice(index, chunk) + GOES_ON + tail

    def finished(self, index: int, call: Call, last: OutputChunk | None) -> bytes:
        """See Answer. The reason stands in the chunk of the last text: clients count chunks as tokens."""
        if last is not None or index not in self._further:
            choice = self._choice(index, last or NOTHING)
        else:
            choice = self._opening(index) + self._form.last + NO_LOGPROBS
        return self._ended(choice, REASONS[call.finish_reason], call)

    def closing(self, calls: Sequence[Call]) -> bytes:
        """See Answer."""
        if not self._includes_usage:
            return DONE
        return self._head + b'],"usage":' + msgspec.json.encode(self._usage(calls)) + b"}\n\n" + DONE

    def error(self, error: FairleadError) -> bytes:
        """See Answer."""
        return event(OPENAI.error_body(error, ""))

    def compact(self, index: int, chunk: OutputChunk) -> OutputChunk:
        """See Answer. The first part has the tokens of the prompt, of which the text that is echoed is kept here."""
        self._prompts.setdefault(index, self._echo(index, chunk))
        return chunk if self._logprobs is None else self._logprobs.compact(index, chunk)

    def whole(self, calls: Sequence[Call], outputs: Sequence[OutputChunk]) -> bytes:
        """See Answer."""
        choices = [
            {
                "index": index,
                **self._whole_choice(index, call, output),
                "logprobs": None if self._logprobs is None else self._logprobs.report(output),
                "stop_reason": call.stop_string or None,  # as vLLM has it
            }
            for index, (call, output) in enumerate(zip(calls, outputs, strict=True))
        ]
        body = {**self._named, "object": self._form.whole, "choices": choices, "usage": self._usage(calls)}
        return msgspec.json.encode(body)

    def _whole_choice(self, index: int, call: Call, output: OutputChunk) -> dict[str, Any]:
        """Return what a whole choice says, and why it ended."""
        text = self._prompt(index) + output.text
        return {**self._form.choice(text), "finish_reason": msgspec.Raw(REASONS[call.finish_reason])}

    def _ended(self, choice: bytes, reason: bytes, call: Call) -> bytes:
        """Return the last chunk of a choice, which stands in it up to its log-probabilities."""
        tail = self._tail if self._counted is None else _with_usage(call, call.usage.output_tokens)
        stop = msgspec.json.encode(call.stop_string or None)
        return b'%s,"finish_reason":%s,"stop_reason":%s}]%s' % (choice, reason, stop, tail)

    def _usage_so_far(self, index: int, call: Call, chunk: OutputChunk) -> bytes:
        """Return the end of an event that is not the last one of its choice."""
        if self._counted is None:
            return self._tail
        self._counted[index] = self._counted.get(index, 0) + chunk.tokens
        return _with_usage(call, self._counted[index])

    def _choice(self, index: int, chunk: OutputChunk) -> bytes:
        """Return a choice up to its log-probabilities."""
        logprobs = msgspec.json.encode(self._reported(index, chunk))
        return b'%s%s,"logprobs":%s' % (self._text(index, chunk), self._form.close, logprobs)

    def _text(self, index: int, chunk: OutputChunk) -> bytes:
        """Return the beginning of a choice, up to its text."""
        before, text = self._further.get(index), chunk.text
        if before is None:
            opening = self._opening(index)
            self._further[index] = opening + self._form.further
            before, text = opening + self._form.first, self._echo(index, chunk) + text
        return before + msgspec.json.encode(text)

    def _reported(self, index: int, chunk: OutputChunk) -> dict[str, Any] | None:
        return None if self._logprobs is None else self._logprobs.report(self._logprobs.compact(index, chunk))

    def _opening(self, index: int) -> bytes:
        return b'%s{"index":%d,' % (self._head, index)

    def _echo(self, index: int, chunk: OutputChunk) -> str:
        """Return what stands before the output of which `chunk` is the first."""
        if not self._echoed:
            return ""
        echoed = self._echoed[index]
        return prompt_text(chunk) if echoed is None else echoed

    def _prompt(self, index: int) -> str:
        """Return what stands before an output that is told as a whole, which may have had no part."""
        return self._prompts[index] if index in self._prompts else self._echo(index, NOTHING)

    def _usage(self, calls: Sequence[Call]) -> dict[str, Any]:
        prompt_tokens = cached_tokens = output_tokens = 0
        for index, call in enumerate(calls):
            output_tokens += call.usage.output_tokens
            if index % self._choices == 0:
                prompt_tokens += call.usage.prompt_tokens
                cached_tokens += call.usage.cached_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": prompt_tokens + output_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        }


def _with_usage(call: Call, output_tokens: int) -> bytes:
    prompt = call.usage.prompt_tokens
    used = (prompt, output_tokens, prompt + output_tokens)
    return b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}\n\n' % used
