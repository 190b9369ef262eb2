"""Interactions: several calls that serve one purpose of a user, connected by stage numbers and the gateway's token."""

import contextlib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, Unpack

from fairlead.completion import Completion
from fairlead.errors import Closed, FairleadError
from fairlead.options import CallOptions, ChatOptions
from fairlead.prompt import Message, as_chat, as_prompt
from fairlead.stream import Stream
from fairlead.tracing import InteractionSpan
from fairlead.v1 import common_pb2, inference_pb2


class Interaction:
    """An interaction with one gateway; `Client.interaction` creates it.

    Calls may run in parallel; each takes the next stage number. After the first call is admitted, the gateway does not
    throttle the others. On exit the client ends the interaction at the gateway; if that fails, it ends after the
    gateway's idle time. Later calls raise Closed. Calls take the keyword arguments that CallOptions and, for chats,
    ChatOptions document.
    """

    def __init__(
        self, start: Callable[..., Stream], end: Callable[[str, inference_pb2.Interaction], Awaitable[None]], app: str
    ) -> None:
        self.id = uuid.uuid4().hex
        self._start_call = start
        self._end = end
        self._app = app
        self._stage = 0
        self._token = b""
        self._is_over = False
        self._span = InteractionSpan(self.id, app)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        self._span.end()
        if self._token:
            with contextlib.suppress(FairleadError):
                await self._end(self._app, self._place())

    async def generate(self, prompt: str | Sequence[int], **options: Unpack[CallOptions]) -> Completion:
        """See Client.generate."""
        return await self.stream(prompt, **options).wait()

    async def chat(self, messages: Sequence[Message], **options: Unpack[ChatOptions]) -> Completion:
        """See Client.chat."""
        return await self.stream_chat(messages, **options).wait()

    def stream(self, prompt: str | Sequence[int], **options: Unpack[CallOptions]) -> Stream:
        """See Client.stream."""
        return self._start(as_prompt(prompt), options)

    def stream_chat(self, messages: Sequence[Message], **options: Unpack[ChatOptions]) -> Stream:
        """See Client.stream_chat."""
        return self._start(*as_chat(messages, options))

    def _start(self, prompt: common_pb2.Prompt, options: CallOptions) -> Stream:
        if self._is_over:
            raise Closed(f"the interaction {self.id} is over")
        place = self._place()
        self._stage += 1
        return self._start_call(
            prompt,
            app=self._app,
            interaction=place,
            parent=self._span.traceparent,
            on_accepted=self._accepted,
            **options,
        )

    def _accepted(self, message: inference_pb2.Accepted) -> None:
        """Store the token that the next call carries."""
        self._token = message.interaction_token or self._token

    def _place(self) -> inference_pb2.Interaction:
        return inference_pb2.Interaction(id=self.id, stage=self._stage, token=self._token)
