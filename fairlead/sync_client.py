"""The SDK for applications without an event loop."""

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from fairlead.background import Background
from fairlead.client import DEFAULT_ADDRESS, Client
from fairlead.completion import Completion
from fairlead.errors import Closed
from fairlead.options import CallOptions, ChatOptions
from fairlead.prompt import Message
from fairlead.retries import Retries
from fairlead.sync_interaction import SyncInteraction
from fairlead.sync_stream import SyncStream
from fairlead.v1 import inference_pb2


class SyncClient:
    """A client like Client with blocking methods. It is safe to use from several threads."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        api_key: str | None = None,
        user: str = "",
        app: str = "",
        retries: Retries = Retries(),  # noqa: B008 - frozen
    ) -> None:
        self._client = Client(address, api_key=api_key, user=user, app=app, retries=retries)
        self._background = Background()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See Client."""
        with contextlib.suppress(Closed):
            self._background.call(self._client.close)
        self._background.close()

    def generate(self, prompt: str | Sequence[int], *, app: str = "", **options: Unpack[CallOptions]) -> Completion:
        """See Client."""
        return self._background.call(self._client.generate, prompt, app=app, **options)

    def chat(self, messages: Sequence[Message], *, app: str = "", **options: Unpack[ChatOptions]) -> Completion:
        """See Client."""
        return self._background.call(self._client.chat, messages, app=app, **options)

    def stream(self, prompt: str | Sequence[int], *, app: str = "", **options: Unpack[CallOptions]) -> SyncStream:
        """See Client."""
        return SyncStream(self._background, self._client.stream(prompt, app=app, **options))

    def stream_chat(self, messages: Sequence[Message], *, app: str = "", **options: Unpack[ChatOptions]) -> SyncStream:
        """See Client."""
        return SyncStream(self._background, self._client.stream_chat(messages, app=app, **options))

    def models(self) -> list[inference_pb2.Model]:
        """See Client."""
        return self._background.call(self._client.models)

    def interaction(self, *, app: str = "") -> SyncInteraction:
        """See Client."""
        return SyncInteraction(self._background, self._client.interaction(app=app))
