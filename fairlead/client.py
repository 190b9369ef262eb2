"""The asynchronous SDK: calls, streams and interactions over one channel."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from fairlead.completion import Completion
from fairlead.errors import FairleadError, InvalidRequest
from fairlead.interaction import Interaction
from fairlead.prompt import Message, as_chat, as_prompt, as_sampling
from fairlead.retries import Retries
from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.rpc.channel import open_channel
from fairlead.rpc.status import from_call
from fairlead.stream import Stream
from fairlead.tracing import current_traceparent
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc

DEFAULT_ADDRESS = "127.0.0.1:7000"
CONTROL_SECONDS = 10.0  # for calls that generate nothing


class Client:
    """A gateway as an application sees it. Use it as a context manager, or `close` it.

    `address` is host:port, or https://host:port for a gateway with TLS.

    Keyword arguments of calls: `model`, `app`, `timeout` (seconds, for the call with all its retries), `each_token`
    (one chunk per token, instead of several) and SamplingParams of common.proto by their names, as `max_tokens`.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        api_key: str = "",
        user: str = "",
        app: str = "",
        retries: Retries = Retries(),  # noqa: B008 - frozen
    ) -> None:
        if not (user.isascii() and user.isprintable()):
            raise InvalidRequest(f"must be printable ASCII, got {user!r}", "user")
        self._app = app
        self._retries = retries
        self._metadata = [("authorization", f"Bearer {api_key}")] if api_key else []
        if user:
            self._metadata.append(("x-fairlead-user", user))
        self._channel = open_channel(address)
        self._stub = inference_pb2_grpc.InferenceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel what is in progress and close the channel."""
        await self._channel.close()

    async def generate(self, prompt: str | Sequence[int], **options: Any) -> Completion:
        """Complete a text or token ids; raises a FairleadError when the call does not complete."""
        return await self.stream(prompt, **options).wait()

    async def chat(self, messages: Sequence[Message], **options: Any) -> Completion:
        """Answer a conversation; raises a FairleadError when the call does not complete."""
        return await self.stream_chat(messages, **options).wait()

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Stream:
        """`generate`, chunk by chunk."""
        return self.start(as_prompt(prompt), **options)

    def stream_chat(self, messages: Sequence[Message], **options: Any) -> Stream:
        """`chat`, chunk by chunk."""
        return self.start(as_chat(messages), **options)

    def interaction(self, *, app: str = "") -> Interaction:
        """Calls that belong together; an asynchronous context manager that ends itself."""
        return Interaction(self, app or self._app)

    async def models(self) -> list[inference_pb2.Model]:
        """The models served now."""
        try:
            request = inference_pb2.ListModelsRequest()
            response = await self._stub.ListModels(request, timeout=CONTROL_SECONDS, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            reraise_cancellation()
            raise from_call(error) from error
        return list(response.models)

    def start(
        self,
        prompt: common_pb2.Prompt,
        *,
        model: str = "",
        app: str = "",
        interaction: inference_pb2.Interaction | None = None,
        timeout: float | None = None,
        each_token: bool = False,
        parent: str = "",
        on_accepted: Callable[[inference_pb2.Accepted], None] = lambda _: None,
        **sampling: Any,
    ) -> Stream:
        """Make the call that the other methods prepare; `parent`: the W3C traceparent, if not the current span's."""
        streaming = inference_pb2.STREAMING_EACH_TOKEN if each_token else inference_pb2.STREAMING_COALESCED
        request = inference_pb2.GenerateRequest(
            model=model,
            prompt=prompt,
            sampling=as_sampling(sampling),
            app=app or self._app,
            interaction=interaction,
            streaming=streaming,
        )
        return Stream(self._responses(request, timeout, parent or current_traceparent()), on_accepted)

    async def end(self, app: str, interaction: inference_pb2.Interaction) -> None:
        """Tell the gateway that no further call of `interaction` will come."""
        request = inference_pb2.EndInteractionRequest(app=app, interaction=interaction)
        try:
            await self._stub.EndInteraction(request, timeout=CONTROL_SECONDS, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            reraise_cancellation()
            raise from_call(error) from error

    async def _responses(
        self, request: inference_pb2.GenerateRequest, timeout: float | None, parent: str
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """The call's responses; a refusal is waited out and the call made again, until something was received."""
        deadline = None if timeout is None else time.monotonic() + timeout
        metadata = [*self._metadata, ("traceparent", parent)] if parent else self._metadata
        retried, received = 0, False
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            try:
                async for response in self._stub.Generate(request, timeout=left, metadata=metadata):
                    received = True
                    yield response
                return
            except grpc.aio.AioRpcError as error:
                reraise_cancellation()
                failure: FairleadError = from_call(error)
                left = None if deadline is None else deadline - time.monotonic()
                wait = None if received else self._retries.wait(failure, retried, left)
                if wait is None:
                    raise failure from error
            await asyncio.sleep(wait)
            retried += 1
