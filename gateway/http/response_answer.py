"""The answers with OpenAI's Responses."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.call_events import OutputChunk
from gateway.http.dialect import OPENAI_RESPONSES
from gateway.http.response_items import REASONING, SUMMARY, Event, ResponseItems
from gateway.http.response_tools import ResponseTools
from gateway.http.responses_request import AskedAnswer
from gateway.http.sse import named_event


class ResponseAnswer:
    """Write the response that one call generates; implements Answer.

    `keep` stores the body of a complete response, with its message, and returns whether there was room for it.
    """

    def __init__(
        self,
        asked: AskedAnswer,
        tools: ResponseTools,
        call: Call,
        keep: Callable[[bytes, common_pb2.ChatMessage], bool],
    ) -> None:
        self._asked = asked
        self._call = call
        self._keep = keep
        self._items = ResponseItems(
            call,
            tools,
            most_calls=1 if asked.is_single else None,
            reasoning=SUMMARY if asked.wants_summary else REASONING,
        )
        self._events = 0

    def chunk(self, index: int, call: Call, chunk: OutputChunk) -> bytes:
        """See Answer. Text that is not decided yet is not written."""
        return self._opening() + self._told(self._items.push(chunk.text))

    def finished(self, index: int, call: Call, last: OutputChunk | None) -> bytes:
        """See Answer."""
        output = self._opening() if last is None else self.chunk(index, call, last)
        return output + self._told(self._items.end(_status(call)))

    def closing(self, calls: Sequence[Call]) -> bytes:
        """See Answer."""
        response = msgspec.Raw(self._complete())
        return self._event(f"response.{_status(self._call)}", response=response)

    def error(self, error: FairleadError) -> bytes:
        """See Answer. The fields are those of the event `error`, and `error` itself is what clients raise."""
        described = OPENAI_RESPONSES.described(error)
        fields = {name: described[name] for name in ("code", "message", "param")}
        return self._event("error", **fields, error=described)

    def compact(self, index: int, chunk: OutputChunk) -> OutputChunk:
        """See Answer."""
        return chunk

    def whole(self, calls: Sequence[Call], outputs: Sequence[OutputChunk]) -> bytes:
        """See Answer."""
        self._told(self._items.push(outputs[0].text))
        self._told(self._items.end(_status(self._call)))
        return self._complete()

    def _complete(self) -> bytes:
        """Return the complete response, which is stored if allowed and if there is room."""
        status = _status(self._call)
        output = self._items.described(status)
        response = self._response(status, output)
        body = msgspec.json.encode(response)
        if self._asked.is_to_be_stored and not self._keep(body, self._items.message()):
            return msgspec.json.encode({**response, "store": False})
        return body

    def _opening(self) -> bytes:
        """Return what stands before the first item, once."""
        if self._events:
            return b""
        response = self._response("in_progress", [])
        return b"".join(
            (
                self._event("response.created", response=response),
                self._event("response.in_progress", response=response),
            )
        )

    def _told(self, events: Iterator[Event]) -> bytes:
        return b"".join([self._event(kind, **fields) for kind, fields in events])

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._number(), **fields}
        return named_event(kind.encode(), msgspec.json.encode(data))

    def _number(self) -> int:
        self._events += 1
        return self._events - 1

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        repeated, call = self._asked.repeated, self._call
        return {
            "id": response_id(call),
            "object": "response",
            "created_at": call.timings.received // 1_000_000_000,
            "status": status,
            "background": False,
            "conversation": None,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": repeated["instructions"],
            "max_output_tokens": repeated["max_output_tokens"],
            "metadata": repeated["metadata"],
            "model": call.model,
            "output": output,
            "reasoning": repeated["reasoning"],
            "parallel_tool_calls": repeated["parallel_tool_calls"],
            "previous_response_id": repeated["previous_response_id"],
            "store": repeated["store"],
            "temperature": repeated["temperature"],
            "text": repeated["text"],
            "tool_choice": repeated["tool_choice"],
            "tools": repeated["tools"],
            "top_p": repeated["top_p"],
            "truncation": "disabled",
            "usage": None if status == "in_progress" else _usage(call),
            "user": repeated["user"],
        }


def _status(call: Call) -> str:
    return "incomplete" if call.finish_reason is FinishReason.LENGTH else "completed"


def _usage(call: Call) -> dict[str, Any]:
    usage = call.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }


def response_id(call: Call) -> str:
    """Return the id of the response that `call` generates."""
    return f"resp_{call.request_id}"
