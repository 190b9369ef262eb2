"""Choices of chat completions whose text holds reasoning or tool calls."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import msgspec

from fairlead.outcomes import FinishReason
from fairlead.output.events import AnswerText, Arguments, CallBegun, Part, Reasoning
from fairlead.output.parser import OutputParser
from fairlead.parsed_output import output_parser
from gateway.call import Call
from gateway.core.call_events import OutputChunk
from gateway.http.choices import GOES_ON, NOTHING, REASONS, ChoicesAnswer, ChoicesFormat
from gateway.http.logprobs import Logprobs
from gateway.http.parameters import Parameters
from gateway.http.tools import custom_text

TOOL_CALLS = b'"tool_calls"'


@dataclass(slots=True)
class _Choice:
    parser: OutputParser
    has_begun: bool = False
    calls: set[int] = field(default_factory=set)
    texts: dict[int, list[str]] = field(default_factory=dict)  # arguments of calls of custom tools


class PartsAnswer(ChoicesAnswer):
    """Write choices in their parts; implements Answer. A choice has at most `most_calls` tool calls.

    Calls of the tools `customs` have a text, which is told at the end of the output.
    """

    def __init__(
        self,
        form: ChoicesFormat,
        call: Call,
        asked: Parameters,
        echoed: Sequence[str | None],
        logprobs: Logprobs | None,
        *,
        most_calls: int | None,
        customs: Collection[str],
    ) -> None:
        super().__init__(form, call, asked, echoed, logprobs)
        self._new = partial(output_parser, call.output_format)
        self._most_calls = most_calls
        self._customs = customs
        self._parsed: dict[int, _Choice] = {}
        self._ids = call.tool_call_id
        self._numbers = count()

    def chunk(self, index: int, call: Call, chunk: OutputChunk) -> bytes:
        """See Answer. What only text that is not decided yet would be in is not written."""
        choice = self._of(index)
        delta = self._opened(index, choice, chunk, choice.parser.push(chunk.text))
        tail = self._usage_so_far(index, call, chunk)
        if not delta and self._logprobs is None and self._counted is None:
            return b""
        return self._delta(index, delta, chunk) + GOES_ON + tail

    def finished(self, index: int, call: Call, last: OutputChunk | None) -> bytes:
        """See Answer."""
        choice, chunk = self._of(index), last or NOTHING
        parts = [*choice.parser.push(chunk.text), *choice.parser.end()]
        delta = self._with_texts(choice, self._opened(index, choice, chunk, parts))
        return self._ended(self._delta(index, delta, chunk), _reason(call, choice), call)

    def _whole_choice(self, index: int, call: Call, output: OutputChunk) -> dict[str, Any]:
        choice = self._of(index)
        parts = [*choice.parser.push(output.text), *choice.parser.end()]
        told = self._with_texts(choice, self._told(choice, parts))
        calls = [{key: value for key, value in each.items() if key != "index"} for each in told.pop("tool_calls", ())]
        content = self._prompt(index) + told.pop("content", "")
        message = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None, **told}
        if calls:
            message["tool_calls"] = calls
        return {"message": message, "finish_reason": msgspec.Raw(_reason(call, choice))}

    def _of(self, index: int) -> _Choice:
        if index not in self._parsed:
            self._parsed[index] = _Choice(self._new())
        return self._parsed[index]

    def _opened(self, index: int, choice: _Choice, chunk: OutputChunk, parts: Sequence[Part]) -> dict[str, Any]:
        """Return the delta with `parts`; the first delta of a choice also has the role and a content."""
        told = self._told(choice, parts)
        if choice.has_begun:
            return told
        choice.has_begun = True
        content = self._echo(index, chunk) + told.pop("content", "")
        return {"role": "assistant", "content": content or (None if told else ""), **told}

    def _delta(self, index: int, delta: dict[str, Any], chunk: OutputChunk) -> bytes:
        written, logprobs = msgspec.json.encode(delta), msgspec.json.encode(self._reported(index, chunk))
        return b'%s"delta":%s,"logprobs":%s' % (self._opening(index), written, logprobs)

    def _told(self, choice: _Choice, parts: Sequence[Part]) -> dict[str, Any]:
        """Return `parts` by the names that the API has for them; the pieces of one call stand together."""
        told: dict[str, Any] = {}
        calls: dict[int, dict[str, Any]] = {}
        for part in parts:
            match part:
                case AnswerText():
                    told["content"] = told.get("content", "") + part.text
                case Reasoning():
                    told["reasoning_content"] = told.get("reasoning_content", "") + part.text
                case CallBegun() if self._most_calls is None or part.number < self._most_calls:
                    choice.calls.add(part.number)
                    calls[part.number] = {
                        "index": part.number,
                        "id": self._ids(next(self._numbers)),
                        **self._call(part),
                    }
                    if part.name in self._customs:
                        choice.texts[part.number] = []
                case Arguments() if part.number in choice.texts:
                    choice.texts[part.number].append(part.text)
                case Arguments() if part.number in choice.calls:
                    piece = calls.setdefault(part.number, {"index": part.number, "function": {"arguments": ""}})
                    piece["function"]["arguments"] += part.text
        return {**told, "tool_calls": list(calls.values())} if calls else told

    def _call(self, call: CallBegun) -> dict[str, Any]:
        if call.name in self._customs:
            return {"type": "custom", "custom": {"name": call.name, "input": ""}}
        return {"type": "function", "function": {"name": call.name, "arguments": ""}}

    def _with_texts(self, choice: _Choice, told: dict[str, Any]) -> dict[str, Any]:
        """Return the last parts of a choice with the texts of its calls of custom tools."""
        calls = {call["index"]: call for call in told.get("tool_calls", ())}
        for number, pieces in choice.texts.items():
            custom = calls.setdefault(number, {"index": number, "custom": {}})["custom"]
            custom["input"] = custom_text("".join(pieces))
        return {**told, "tool_calls": list(calls.values())} if calls else told


def _reason(call: Call, choice: _Choice) -> bytes:
    if choice.calls and call.finish_reason is FinishReason.STOP:
        return TOOL_CALLS
    return REASONS[call.finish_reason]
