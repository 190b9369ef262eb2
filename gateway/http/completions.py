"""POST /v1/completions."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.call_events import OutputChunk
from gateway.http.api import Generation
from gateway.http.choices import ChoicesAnswer, ChoicesFormat, choices
from gateway.http.common_fields import Natural
from gateway.http.decoding import check_supported, decode
from gateway.http.logprobs import TextLogprobs
from gateway.http.parameters import HARMLESS, MAX_CALLS, Alternatives, Parameters, Unsupported
from serving.rpc.channel import MAX_REQUEST_BYTES

HARMLESS_IN_TEXTS = {**HARMLESS, "add_special_tokens": (True,)}
HARMLESS_TOOLS: dict[str, tuple[Any, ...]] = {"tools": ([],), "tool_choice": ("none", "auto")}
FORM = ChoicesFormat(
    id="cmpl",
    whole="text_completion",
    chunk="text_completion",
    first=b'"text":',
    further=b'"text":',
    close=b"",
    last=b'"text":""',
    choice=lambda text: {"text": text},
)


class PromptsAnswer(ChoicesAnswer):
    """Writes prompts alone, where `max_tokens` is 0: the one token that each call generates is left out."""

    def chunk(self, index: int, call: Call, chunk: OutputChunk) -> bytes:
        """See Answer."""
        return super().chunk(index, call, _without_output(chunk))

    def finished(self, index: int, call: Call, last: OutputChunk | None) -> bytes:
        """See Answer."""
        return super().finished(index, call, None if last is None else _without_output(last))

    def whole(self, calls: Sequence[Call], outputs: Sequence[OutputChunk]) -> bytes:
        """See Answer."""
        return super().whole(calls, [_without_output(output) for output in outputs])


def _without_output(chunk: OutputChunk) -> OutputChunk:
    return OutputChunk(b"", "", (), chunk.prompt_logprobs)


class UnsupportedByCompletions(Parameters, kw_only=True):
    """Parameters of chats that completions do not obey."""

    tools: Any = None
    tool_choice: Any = None


class CompletionRequest(UnsupportedByCompletions, kw_only=True):
    """The body of a request for completions; implements ParsedRequest."""

    prompt: str | list[str | Natural | list[Natural]]
    echo: bool | None = None
    logprobs: Alternatives | None = None

    def generations(self) -> Sequence[Generation]:
        """See ParsedRequest."""
        prompts, number = self._prompts(), self.n or 1
        if len(prompts) * number > MAX_CALLS:
            limit = f"a request may ask for at most {MAX_CALLS} choices"
            raise InvalidRequest(f"{limit}, got {len(prompts)} prompts with n = {number}", "prompt")
        if self.echo:
            _check_echo(sum(len(prompt) for prompt in prompts) * number)
        sampling = self.sampling(self.response_format)
        if self.logprobs is not None:
            sampling.logprobs = self.logprobs
            if self.echo:
                sampling.prompt_logprobs = self.logprobs
        if self._is_only_echo:
            sampling.max_tokens = 1
        return [call for prompt in map(self._prompt, prompts) for call in choices(prompt, sampling, number)]

    def forget(self) -> None:
        """See ParsedRequest."""
        super().forget()
        if not self.echo:
            self.prompt = ""

    def answer(self, call: Call) -> ChoicesAnswer:
        """See ParsedRequest."""
        prompts = [prompt if isinstance(prompt, str) else None for prompt in self._prompts()]
        echoed = [prompt for prompt in prompts for _ in range(self.n or 1)] if self.echo else []
        logprobs = None if self.logprobs is None else TextLogprobs()
        writer = PromptsAnswer if self._is_only_echo else ChoicesAnswer
        return writer(FORM, call, self, echoed, logprobs)

    @property
    def _is_only_echo(self) -> bool:
        return bool(self.echo) and self.max_tokens == 0

    def _prompts(self) -> Sequence[str | list[int]]:
        """Return each prompt, text or token ids; raises InvalidRequest for what is neither one nor several."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise InvalidRequest("must hold at least 1 prompt, got 0", "prompt")
        kinds = set(map(type, self.prompt))
        if int not in kinds:
            return cast("list[str | list[int]]", self.prompt)
        if len(kinds) > 1:
            raise InvalidRequest("must hold token ids or prompts, not both", "prompt")
        return [cast("list[int]", self.prompt)]

    def _prompt(self, prompt: str | list[int]) -> common_pb2.Prompt:
        if isinstance(prompt, str):
            return common_pb2.Prompt(text=prompt)
        if self.echo and self.logprobs is None:
            raise InvalidRequest("a prompt of token ids can be echoed only with logprobs", "echo")
        return common_pb2.Prompt(token_ids=common_pb2.TokenIds(packed=pack_ids(prompt)))


def _check_echo(size: int) -> None:
    """Raise InvalidRequest for prompts that are larger in their choices together than any body may be."""
    if size > MAX_REQUEST_BYTES:
        raise InvalidRequest(f"at most {MAX_REQUEST_BYTES} characters or tokens are echoed, got {size}", "echo")


_DECODER = msgspec.json.Decoder(CompletionRequest)


def completions(body: bytes) -> CompletionRequest:
    """See Api."""
    asked = decode(_DECODER, body)
    check_supported(asked, Unsupported, HARMLESS_IN_TEXTS)
    check_supported(asked, UnsupportedByCompletions, HARMLESS_TOOLS)
    return asked
