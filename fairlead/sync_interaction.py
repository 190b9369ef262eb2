"""Interactions for applications without an event loop."""

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from fairlead.background import Background
from fairlead.completion import Completion
from fairlead.errors import Closed
from fairlead.interaction import Interaction
from fairlead.options import CallOptions, ChatOptions
from fairlead.prompt import Message
from fairlead.sync_stream import SyncStream


class SyncInteraction:
    """An interaction like Interaction with blocking methods, which `SyncClient.interaction` creates."""

    def __init__(self, background: Background, interaction: Interaction) -> None:
        self._background = background
        self._interaction = interaction

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(Closed):
            self._background.call(self._interaction.__aexit__, kind, error, traceback)

    @property
    def id(self) -> str:
        """See Interaction."""
        return self._interaction.id

    def generate(self, prompt: str | Sequence[int], **options: Unpack[CallOptions]) -> Completion:
        """See Client.generate."""
        return self._background.call(self._interaction.generate, prompt, **options)

    def chat(self, messages: Sequence[Message], **options: Unpack[ChatOptions]) -> Completion:
        """See Client.chat."""
        return self._background.call(self._interaction.chat, messages, **options)

    def stream(self, prompt: str | Sequence[int], **options: Unpack[CallOptions]) -> SyncStream:
        """See Client.stream."""
        return SyncStream(self._background, self._interaction.stream(prompt, **options))

    def stream_chat(self, messages: Sequence[Message], **options: Unpack[ChatOptions]) -> SyncStream:
        """See Client.stream_chat."""
        return SyncStream(self._background, self._interaction.stream_chat(messages, **options))
