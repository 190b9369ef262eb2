"""The requests for OpenAI's Responses."""

from typing import Annotated, Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.chat_prompt import ROLES
from gateway.http.constraint import JsonObjectFormat, SchemaFormat, TextFormat, TextOptions, of_schema
from gateway.http.content import Content, text_of
from gateway.http.decoding import decode
from gateway.http.openai_request import OpenAIRequest
from gateway.http.sampling import Natural
from gateway.http.unsupported import check_supported
from gateway.validation import MAX_MESSAGES

TEXTS = ("input_text", "output_text", "text")


class UnsupportedByResponses(OpenAIRequest, kw_only=True):
    """Parameters that clients know and this API does not obey."""

    conversation: Any = None
    background: Any = None
    tools: Any = None
    tool_choice: Any = None
    reasoning: Any = None
    include: Any = None
    truncation: Any = None
    context_management: Any = None
    top_logprobs: Any = None
    moderation: Any = None


# Values that ask for nothing but what is done anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "reasoning": ({}, {"effort": "none"}),
    "include": ([], ["reasoning.encrypted_content"]),  # of reasoning that there is not
    "truncation": ("disabled",),
    "context_management": ([],),
    "top_logprobs": (0,),
}


class ResponseItem(msgspec.Struct):
    """Hold one item of the input; only messages are understood."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Content = None

    def message(self, place: str) -> common_pb2.ChatMessage:
        """Return the message; raises InvalidRequest for what is none, and for what is not text."""
        if self.type != "message":
            raise InvalidRequest(f"only items of type 'message' are supported, got {self.type[:32]!r}", f"{place}.type")
        if self.role is None:
            raise InvalidRequest("a message needs a role", f"{place}.role")
        return common_pb2.ChatMessage(
            role=ROLES.get(self.role, self.role), content=text_of(self.content, f"{place}.content", TEXTS)
        )


class ResponsesRequest(UnsupportedByResponses, kw_only=True):
    """Say what response is to be generated."""

    input: str | Annotated[list[ResponseItem], msgspec.Meta(max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Natural | None = None
    text: TextOptions | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    prompt: Any = None
    metadata: dict[str, str] | None = None

    @property
    def is_to_be_stored(self) -> bool:
        """Whether the response may be read again or continued later, as it may by default."""
        return self.store is not False

    @property
    def format(self) -> TextFormat | JsonObjectFormat | SchemaFormat:
        """What the text of the response has to be."""
        return (self.text and self.text.format) or TextFormat()

    def sampling(self) -> common_pb2.SamplingParams:
        """Return how tokens are chosen."""
        sampling = self.parameters(self.max_output_tokens, None)
        match self.format:
            case JsonObjectFormat():
                sampling.json_object = True
            case SchemaFormat(schema=schema):
                sampling.MergeFrom(of_schema(schema))
        return sampling

    def messages(self) -> list[common_pb2.ChatMessage]:
        """Return the input without the instructions; raises InvalidRequest for what is no message or not text."""
        if isinstance(self.input, str):
            return [common_pb2.ChatMessage(role="user", content=self.input)]
        return [item.message(f"input[{index}]") for index, item in enumerate(self.input)]


_DECODER = msgspec.json.Decoder(ResponsesRequest)


def read(body: bytes) -> ResponsesRequest:
    """Return what `body` asks for; raises InvalidRequest."""
    request = decode(_DECODER, body)
    check_supported(request, UnsupportedByResponses, HARMLESS)
    if request.prompt is not None:
        raise InvalidRequest("no prompt is stored: send it as input and instructions", "prompt.id")
    return request
