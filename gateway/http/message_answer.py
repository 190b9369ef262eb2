"""The messages that Anthropic's API answers with."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason
from fairlead.output.events import AnswerText, Arguments, CallBegun, Part, Reasoning
from fairlead.parsed_output import output_parser
from gateway.call import Call
from gateway.core.call_events import OutputChunk
from gateway.http.dialect import ANTHROPIC
from gateway.http.sse import named_event
from serving.tool_arguments import arguments_object

EMPTY = {"text": {"type": "text", "text": ""}, "thinking": {"type": "thinking", "thinking": "", "signature": ""}}
CUT: dict[str, str | None] = {"stop_reason": "max_tokens", "stop_sequence": None}
DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b:%b}}\n\n'


class MessageAnswer:
    """Write the message that one call generates, with at most `most_calls` tool calls; implements Answer."""

    def __init__(self, call: Call, most_calls: int | None) -> None:
        self._call = call
        self._most_calls = most_calls
        self._has_begun = False
        self._blocks = 0  # that have begun; the last one is open
        self._open = ""  # the type of the last block
        self._calls = 0
        self._parser = output_parser(call.output_format)

    def chunk(self, index: int, call: Call, chunk: OutputChunk) -> bytes:
        """See Answer. Text that is not decided yet is not written."""
        return self._opening() + self._events(self._parser.push(chunk.text))

    def finished(self, index: int, call: Call, last: OutputChunk | None) -> bytes:
        """See Answer."""
        parts = [*self._parser.push("" if last is None else last.text), *self._parser.end()]
        output = self._opening() + self._events(parts)
        if not self._blocks:
            output += self._begin("text", EMPTY["text"])
        delta = _event({"type": "message_delta", "delta": self._stop(), "usage": _usage(call)})
        return output + self._close() + delta

    def closing(self, calls: Sequence[Call]) -> bytes:
        """See Answer."""
        return _event({"type": "message_stop"})

    def error(self, error: FairleadError) -> bytes:
        """See Answer."""
        return named_event(b"error", ANTHROPIC.error_body(error, self._call.request_id))

    def compact(self, index: int, chunk: OutputChunk) -> OutputChunk:
        """See Answer."""
        return chunk

    def whole(self, calls: Sequence[Call], outputs: Sequence[OutputChunk]) -> bytes:
        """See Answer."""
        blocks: list[dict[str, Any]] = []
        for part in self._told([*self._parser.push(outputs[0].text), *self._parser.end()]):
            match part:
                case CallBegun():
                    blocks.append({**self._call_block(part), "input": ""})
                case Arguments():
                    blocks[-1]["input"] += part.text
                case AnswerText() | Reasoning():
                    kind = _kind(part)
                    if not blocks or blocks[-1]["type"] != kind:
                        blocks.append({**EMPTY[kind]})
                    blocks[-1][kind] += part.text
        content = [_complete(block) for block in blocks] or [EMPTY["text"]]
        self._calls = sum(1 for block in content if block["type"] == "tool_use")
        return msgspec.json.encode(self._message(content, self._stop()))

    def _events(self, parts: Sequence[Part]) -> bytes:
        """Return the events that tell `parts`, each in a block of its type."""
        events = b""
        for part in self._told(parts):
            match part:
                case CallBegun():
                    events += self._begin("tool_use", self._call_block(part))
                case Arguments():
                    events += self._delta(b'"input_json_delta","partial_json"', part.text)
                case AnswerText() | Reasoning():
                    kind = _kind(part)
                    if self._open != kind:
                        events += self._begin(kind, EMPTY[kind])
                    events += self._delta(f'"{kind}_delta","{kind}"'.encode(), part.text)
        return events

    def _told(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Return `parts` without the calls that are too many, and count the others."""
        most = self._most_calls
        told = [
            part
            for part in parts
            if most is None or not (isinstance(part, CallBegun | Arguments) and part.number >= most)
        ]
        self._calls += sum(1 for part in told if isinstance(part, CallBegun))
        return told

    def _begin(self, kind: str, block: dict[str, Any]) -> bytes:
        """Return the events that end the open block, if there is one, and begin the next."""
        closed = self._close()
        self._open, self._blocks = kind, self._blocks + 1
        return closed + _event({"type": "content_block_start", "index": self._blocks - 1, "content_block": block})

    def _close(self) -> bytes:
        return _event({"type": "content_block_stop", "index": self._blocks - 1}) if self._blocks else b""

    def _delta(self, names: bytes, text: str) -> bytes:
        return DELTA % (self._blocks - 1, names, msgspec.json.encode(text))

    def _opening(self) -> bytes:
        """Return what stands before the first block, once."""
        if self._has_begun:
            return b""
        self._has_begun = True
        message = self._message([], {"stop_reason": None, "stop_sequence": None})
        message["usage"]["output_tokens"] = 0  # some clients add what `message_delta` tells, which counts them all
        return _event({"type": "message_start", "message": message}) + ANTHROPIC.ping

    def _call_block(self, call: CallBegun) -> dict[str, Any]:
        return {"type": "tool_use", "id": self._call.tool_call_id(call.number), "name": call.name, "input": {}}

    def _message(self, content: list[dict[str, Any]], stop: dict[str, str | None]) -> dict[str, Any]:
        return {
            "id": f"msg_{self._call.request_id}",
            "type": "message",
            "role": "assistant",
            "model": self._call.model,
            "content": content,
            **stop,
            "usage": _usage(self._call),
        }

    def _stop(self) -> dict[str, str | None]:
        call = self._call
        if call.finish_reason is FinishReason.LENGTH:
            return CUT
        if call.stop_string:
            return {"stop_reason": "stop_sequence", "stop_sequence": call.stop_string}
        return {"stop_reason": "tool_use" if self._calls else "end_turn", "stop_sequence": None}


class EmptyAnswer(MessageAnswer):
    """Writes a message without content, where `max_tokens` is 0: the call computes its prompt, which is cached then.

    The one token that it generates is left out.
    """

    def chunk(self, index: int, call: Call, chunk: OutputChunk) -> bytes:
        """See Answer."""
        return self._opening()

    def finished(self, index: int, call: Call, last: OutputChunk | None) -> bytes:
        """See Answer."""
        return self._opening() + _event({"type": "message_delta", "delta": CUT, "usage": _usage(call)})

    def whole(self, calls: Sequence[Call], outputs: Sequence[OutputChunk]) -> bytes:
        """See Answer."""
        return msgspec.json.encode(self._message([], CUT))


def _kind(part: AnswerText | Reasoning) -> str:
    return "text" if isinstance(part, AnswerText) else "thinking"


def _complete(block: dict[str, Any]) -> dict[str, Any]:
    """Return a call with its input, or as a text if what the model wrote as arguments is no object."""
    if block["type"] != "tool_use":
        return block
    arguments = arguments_object(block["input"])
    if arguments is not None:
        return {**block, "input": arguments}
    return {"type": "text", "text": f"{block['name']}({block['input']})"}


def _event(data: dict[str, Any]) -> bytes:
    return named_event(data["type"].encode(), msgspec.json.encode(data))


def _usage(call: Call) -> dict[str, int]:
    """Return the numbers of tokens; those of the prompt that were cached are not among `input_tokens`."""
    usage = call.usage
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
