"""POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fairlead.errors import InvalidRequest
from gateway.call import Call
from gateway.http.api import Generation
from gateway.http.chat_prompt import Message, chat_prompt, media_in
from gateway.http.choices import ChoicesAnswer, ChoicesFormat, choices
from gateway.http.common_fields import Maximum, bounded
from gateway.http.decoding import check_supported, decode
from gateway.http.logprobs import ChatLogprobs
from gateway.http.parameters import HARMLESS, Alternatives, Parameters, Unsupported
from gateway.http.parts_answer import PartsAnswer
from gateway.http.tools import ToolDefinition, custom_names, left_out_tools, tool_choice, tools_to_offer
from gateway.validation import MAX_MESSAGES, needs_call

HARMLESS_IN_CHATS = {**HARMLESS, "add_special_tokens": (False,)}  # the chat template writes them
FORM = ChoicesFormat(
    id="chatcmpl",
    whole="chat.completion",
    chunk="chat.completion.chunk",
    first=b'"delta":{"role":"assistant","content":',
    further=b'"delta":{"content":',
    close=b"}",
    last=b'"delta":{}',
    choice=lambda text: {"message": {"role": "assistant", "content": text, "refusal": None}},
)


class ChatCompletionRequest(Parameters, kw_only=True):
    """The body of a request for a chat completion; implements ParsedRequest."""

    messages: Annotated[list[Message], Meta(max_length=MAX_MESSAGES)]
    max_completion_tokens: Maximum | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    echo: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    tools: list[ToolDefinition] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    @property
    def names(self) -> dict[str, str]:
        """See ParsedRequest."""
        names = super().names
        return (
            names if self.max_completion_tokens is None else {**names, "sampling.max_tokens": "max_completion_tokens"}
        )

    def generations(self) -> Sequence[Generation]:
        """See ParsedRequest. An output that has to be a call has no message, and so no format."""
        choice = tool_choice(self.tool_choice, self.parallel_tool_calls)
        sampling = self.sampling(None if needs_call(choice) else self.response_format)
        if self.max_completion_tokens is not None:
            sampling.max_tokens = bounded(self.max_completion_tokens)
        if self.logprobs:
            sampling.logprobs = self.top_logprobs or 0
        elif self.top_logprobs:
            raise InvalidRequest("needs logprobs to be true", "top_logprobs")
        prompt = chat_prompt(
            self.messages,
            self.add_generation_prompt,
            self.continue_final_message,
            self.chat_template_kwargs,
            tools_to_offer(self.tools, self.tool_choice),
            choice,
            self.wishes(),
        )
        return choices(prompt, sampling, self.n or 1)

    def left_out(self) -> list[str]:
        """See ParsedRequest."""
        parts = [
            f"messages[{number}].content[{index}]"
            for number, message in enumerate(self.messages)
            if message.role == "tool"
            for index in media_in(message.content)  # of which the model is told no more than the type
        ]
        return [*left_out_tools(self.tools), *parts]

    def forget(self) -> None:
        """See ParsedRequest."""
        super().forget()
        self.messages = [Message(each.role, each.text("messages")) for each in self._continued] if self.echo else []
        self.tool_choice = None
        for tool in self.tools or ():
            tool.function = None
            if tool.custom is not None:
                tool.custom.description = tool.custom.format = None

    @property
    def _continued(self) -> list[Message]:
        """The last message, if an answer that echoes begins with it."""
        return [last for last in self.messages[-1:] if last.role == "assistant"]

    def answer(self, call: Call) -> ChoicesAnswer:
        """See ParsedRequest."""
        known = call.output_format
        echoed = [each.text("messages") for each in self._continued] * (self.n or 1) if self.echo else []
        logprobs = ChatLogprobs() if self.logprobs else None
        if not (known.tool_calls or known.reasoning or known.response_template):
            return ChoicesAnswer(FORM, call, self, echoed, logprobs)
        most_calls = 1 if self.parallel_tool_calls is False else None
        customs = custom_names(self.tools)
        return PartsAnswer(FORM, call, self, echoed, logprobs, most_calls=most_calls, customs=customs)


_DECODER = msgspec.json.Decoder(ChatCompletionRequest)


def chat_completions(body: bytes) -> ChatCompletionRequest:
    """See Api."""
    asked = decode(_DECODER, body)
    check_supported(asked, Unsupported, HARMLESS_IN_CHATS)
    return asked
