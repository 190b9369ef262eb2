"""The items that say what a response continues: those of its request, and those of a conversation."""

from collections.abc import MutableSequence, Sequence
from typing import Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.call import new_id
from gateway.core.stored_conversation import StoredItem
from gateway.http.chat_prompt import ROLES, tool_call
from gateway.http.content import Content, text_of

ITEMS = ("message", "function_call", "function_call_output", "reasoning")
TEXTS = ("input_text", "output_text", "text")


class InputItem(msgspec.Struct):
    """One item of an input or a conversation; its type determines which fields count."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Content = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: Content = None

    def add_to(self, messages: MutableSequence[common_pb2.ChatMessage], place: str) -> None:
        """Append what the item says to `messages`; a call joins the message of the assistant before it.

        Earlier reasoning is ignored. Raises InvalidRequest for items of other types, and for what is not text.
        """
        match self.type:
            case "message" if self.role is None:
                raise InvalidRequest("a message needs a role", f"{place}.role")
            case "function_call" if not self.name:
                raise InvalidRequest("a call needs the name of a function", f"{place}.name")
            case "message":
                role = ROLES.get(self.role or "", self.role)
                content = text_of(self.content, f"{place}.content", TEXTS)
                messages.append(common_pb2.ChatMessage(role=role, content=content))
            case "function_call":
                if not messages or messages[-1].role != "assistant":
                    messages.append(common_pb2.ChatMessage(role="assistant"))
                call = tool_call(self.call_id, self.name, self.arguments, f"{place}.arguments")
                messages[-1].tool_calls.append(call)
            case "function_call_output":
                content = text_of(self.output, f"{place}.output", TEXTS)
                messages.append(common_pb2.ChatMessage(role="tool", content=content, tool_call_id=self.call_id))
            case "reasoning":
                pass
            case _:
                raise InvalidRequest(f"must be one of {', '.join(ITEMS)}, got {self.type[:32]!r}", f"{place}.type")

    def stored(self) -> StoredItem | None:
        """Return the item as a conversation has it, with an id of its own; None for reasoning, which is ignored.

        The item must be one that `add_to` accepts.
        """
        fields: dict[str, Any]
        match self.type:
            case "message":
                prefix, fields = "msg", {"role": self.role, "content": self._parts()}
            case "function_call":
                prefix, fields = "fc", {"call_id": self.call_id, "name": self.name, "arguments": self.arguments}
            case "function_call_output":
                output = text_of(self.output, "output", TEXTS)
                prefix, fields = "fco", {"call_id": self.call_id, "output": output}
            case _:
                return None
        item_id = f"{prefix}_{new_id()}"
        described = {"id": item_id, "type": self.type, "status": "completed", **fields}
        return StoredItem(item_id, msgspec.json.encode(described))

    def _parts(self) -> list[dict[str, Any]]:
        if self.content is None:
            return []
        texts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content]
        if self.role == "assistant":
            return [{"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts]
        return [{"type": "input_text", "text": text} for text in texts]


def add_items(messages: MutableSequence[common_pb2.ChatMessage], items: Sequence[InputItem], place: str) -> None:
    """Append what `items` say to `messages`; raises InvalidRequest, which names an item below `place`, as `add_to`."""
    for index, item in enumerate(items):
        item.add_to(messages, f"{place}[{index}]")
