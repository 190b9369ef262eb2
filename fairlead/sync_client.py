"""The SDK for applications without an event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from fairlead.client import DEFAULT_ADDRESS, Client
from fairlead.completion import Chunk, Completion
from fairlead.interaction import Interaction
from fairlead.prompt import Message
from fairlead.retries import Retries
from fairlead.v1 import inference_pb2

T = TypeVar("T")


class Background:
    """An event loop in a thread of its own, where the asynchronous SDK runs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fairlead-client", daemon=True)
        self._thread.start()

    def call(self, awaitable: Awaitable[T]) -> T:
        """Run it there and wait. An interrupt here cancels it there."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(_coroutine(awaitable), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


class SyncClient:
    """Client, blocking. Safe to use from several threads."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        api_key: str = "",
        user: str = "",
        app: str = "",
        retries: Retries = Retries(),  # noqa: B008 - frozen
    ) -> None:
        self._background = Background()

        async def connect() -> Client:
            return Client(address, api_key=api_key, user=user, app=app, retries=retries)

        self._client = self._background.call(connect())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See Client."""
        self._background.call(self._client.close())
        self._background.close()

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Completion:
        """See Client."""
        return self._background.call(self._client.generate(prompt, **options))

    def chat(self, messages: Sequence[Message], **options: Any) -> Completion:
        """See Client."""
        return self._background.call(self._client.chat(messages, **options))

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Iterator[Chunk]:
        """See Client."""
        return _iterate(self._background, aiter(self._client.stream(prompt, **options)))

    def stream_chat(self, messages: Sequence[Message], **options: Any) -> Iterator[Chunk]:
        """See Client."""
        return _iterate(self._background, aiter(self._client.stream_chat(messages, **options)))

    def models(self) -> list[inference_pb2.Model]:
        """See Client."""
        return self._background.call(self._client.models())

    def interaction(self, *, app: str = "") -> "SyncInteraction":
        """See Client."""
        return SyncInteraction(self._background, self._client.interaction(app=app))


class SyncInteraction:
    """Interaction, blocking."""

    def __init__(self, background: Background, interaction: Interaction) -> None:
        self._background = background
        self._interaction = interaction

    def __enter__(self) -> Self:
        self._background.call(self._interaction.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._background.call(self._interaction.__aexit__(kind, error, traceback))

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Completion:
        """See Client."""
        return self._background.call(self._interaction.generate(prompt, **options))

    def chat(self, messages: Sequence[Message], **options: Any) -> Completion:
        """See Client."""
        return self._background.call(self._interaction.chat(messages, **options))

    def stream_chat(self, messages: Sequence[Message], **options: Any) -> Iterator[Chunk]:
        """See Client."""
        return _iterate(self._background, aiter(self._interaction.stream_chat(messages, **options)))


def _iterate(background: Background, chunks: AsyncIterator[Chunk]) -> Iterator[Chunk]:
    ended = object()

    def following() -> Coroutine[Any, Any, Chunk | object]:
        async def step() -> Chunk | object:
            return await anext(chunks, ended)

        return step()

    while isinstance(chunk := background.call(following()), Chunk):
        yield chunk
