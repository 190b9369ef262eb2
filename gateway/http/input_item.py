"""The items that say what a response continues."""

from collections.abc import Iterator, MutableSequence, Sequence
from typing import Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.chat_prompt import MEDIA, ROLES, TEXTS, Content, arguments_text, media_in, result_text, text_of
from gateway.http.response_tools import full_name
from gateway.http.tools import custom_arguments
from gateway.validation import MAX_CALLED, check_name

COMPACTED = ("compaction", "compaction_summary", "context_compaction")  # conversations that OpenAI alone can read
REFERENCE = "item_reference"
ADDITION = "additional_tools"
SAID = (*TEXTS, *MEDIA, *COMPACTED, REFERENCE)  # what says something that the model would miss
OF_CALLERS = ("function_call", "custom_tool_call")  # calls of tools that callers define
KNOWN = ("message", "reasoning", ADDITION, *OF_CALLERS)
CALL, OUTPUT = "_call", "_output"  # ends of types


class InputItem(msgspec.Struct, omit_defaults=True):
    """One item of an input; its type determines which fields count.

    A type that ends with `_call` is a call, and one that ends with `_output` its result. A call without a
    `call_id` was made by OpenAI's servers, and has no result that could be told; items of other types are theirs, too.
    """

    type: str | None = None
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Content = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    input: Any = None  # of a custom tool
    action: Any = None  # of a shell or a computer
    operation: Any = None  # of a patch
    output: Any = None
    tools: Any = None  # that a search has found, or that are offered from here on

    @property
    def kind(self) -> str:
        """The type of the item; one that does not say it is a message, or with no more than an id a reference."""
        if self.type:
            return self.type
        return "message" if self.id is None or self.role is not None or self.content is not None else REFERENCE

    @property
    def is_left_out(self) -> bool:
        """Whether the item is what OpenAI's servers have made: a call, its result, or one of an unknown type."""
        kind = self.kind
        if kind in KNOWN or kind.endswith(CALL + OUTPUT) or self._is_unknown_message:
            return False
        return not (kind.endswith((CALL, OUTPUT)) and self.call_id)

    @property
    def left_out_parts(self) -> Iterator[int]:
        """The numbers of the parts of a result of which the model is told no more than the type."""
        return media_in(self.output) if self.kind.endswith(OUTPUT) and not self.is_left_out else iter(())

    @property
    def _is_unknown_message(self) -> bool:
        """Whether the item says something, but is neither a message nor made by a tool."""
        return not self.kind.endswith((CALL, OUTPUT)) and (self.content is not None or self.kind in SAID)

    def add_to(self, messages: MutableSequence[common_pb2.ChatMessage], place: str) -> None:
        """Append what the item says to `messages`; a call joins the message of the assistant before it.

        Earlier reasoning is ignored. Raises InvalidRequest for messages of other types, and for what is not text.
        """
        kind = self.kind
        if kind in ("reasoning", ADDITION) or self.is_left_out:
            return
        if kind == "message":
            if self.role is None:
                raise InvalidRequest("a message needs a role", f"{place}.role")
            content = text_of(self.content, f"{place}.content", TEXTS)
            messages.append(common_pb2.ChatMessage(role=ROLES.get(self.role, self.role), content=content))
        elif kind.endswith(CALL):
            if not messages or messages[-1].role != "assistant":
                messages.append(common_pb2.ChatMessage(role="assistant"))
            messages[-1].tool_calls.append(self._as_call(place))
        elif kind.endswith(OUTPUT):
            content = self._result()
            messages.append(common_pb2.ChatMessage(role="tool", content=content, tool_call_id=self.call_id or self.id))
        else:
            problem = f"what such an item says cannot be read here, got {kind[:32]!r}"
            raise InvalidRequest(f"{problem}: send the message, or the whole conversation", f"{place}.type")

    def _as_call(self, place: str) -> common_pb2.ToolCall:
        name, arguments = self.name or "", arguments_text(self.arguments)
        if self.kind in OF_CALLERS:
            check_name(name, f"{place}.name", MAX_CALLED)
        match self.kind:
            case "custom_tool_call":
                arguments = custom_arguments(arguments_text(self.input))
            case "function_call":
                pass
            case kind:
                name = name or kind.removesuffix(CALL)
                arguments = arguments or arguments_text(self.action or self.operation or self.input)
        return common_pb2.ToolCall(id=self.call_id, name=full_name(self.namespace or "", name), arguments=arguments)

    def _result(self) -> str:
        return result_text(self.tools if self.output is None else self.output)


def add_items(messages: MutableSequence[common_pb2.ChatMessage], items: Sequence[InputItem], place: str) -> None:
    """Append what `items` say to `messages`; raises InvalidRequest, which names an item below `place`, as `add_to`."""
    for index, item in enumerate(items):
        item.add_to(messages, f"{place}[{index}]")
