"""POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.http.api import Generation
from gateway.http.choices import ChoicesAnswer, Form
from gateway.http.content import Content, text_of
from gateway.http.decoding import decode
from gateway.http.parameters import HARMLESS, Parameters, Unsupported
from gateway.http.sampling import Natural, drawn
from gateway.http.unsupported import check_supported
from gateway.validation import MAX_MESSAGES

ROLES = {"developer": "system"}  # another name for it
FORM = Form(
    id="chatcmpl",
    whole="chat.completion",
    chunk="chat.completion.chunk",
    first=b'"delta":{"role":"assistant","content":',
    further=b'"delta":{"content":',
    close=b"}",
    last=b'"delta":{}',
    choice=lambda text: {"message": {"role": "assistant", "content": text, "refusal": None}},
)


class Message(msgspec.Struct):
    """A message of the conversation; its author's name is ignored."""

    role: str
    content: Content = None
    tool_calls: Any = None
    function_call: Any = None

    def text(self, place: str) -> str:
        """Return the message's text; raises InvalidRequest for what is not text."""
        for name in ("tool_calls", "function_call"):
            if getattr(self, name):
                raise InvalidRequest("this parameter is not supported yet", f"{place}.{name}")
        return text_of(self.content, f"{place}.content")


def chat(messages: Sequence[Message]) -> common_pb2.Prompt:
    """Return `messages` as a prompt; raises InvalidRequest for what is not text."""
    turns = [
        common_pb2.ChatMessage(role=ROLES.get(message.role, message.role), content=message.text(f"messages[{index}]"))
        for index, message in enumerate(messages)
    ]
    return common_pb2.Prompt(chat=common_pb2.Chat(messages=turns))


class ChatCompletionRequest(Parameters, kw_only=True):
    """Say what a chat completion is to be made of; implements Asked."""

    messages: Annotated[list[Message], Meta(max_length=MAX_MESSAGES)]
    max_completion_tokens: Natural | None = None

    def generations(self) -> Sequence[Generation]:
        """See Asked."""
        sampling = self.sampling()
        if self.max_completion_tokens is not None:
            sampling.max_tokens = self.max_completion_tokens
        prompt = chat(self.messages)
        return [Generation(prompt, drawn(sampling, number)) for number in range(self.n or 1)]

    def answer(self, call: Call) -> ChoicesAnswer:
        """See Asked."""
        return ChoicesAnswer(FORM, call, choices=self.n or 1, includes_usage=self.includes_usage)


_DECODER = msgspec.json.Decoder(ChatCompletionRequest)


def chat_completions(body: bytes) -> ChatCompletionRequest:
    """See Api."""
    asked = decode(_DECODER, body)
    check_supported(asked, Unsupported, HARMLESS)
    return asked
