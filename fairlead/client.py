"""The asynchronous SDK: calls, streams and interactions with one gateway."""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc

from fairlead.address import gateway_target
from fairlead.completion import Completion
from fairlead.connections import Connections
from fairlead.errors import Closed, FairleadError, InvalidRequest
from fairlead.interaction import Interaction
from fairlead.options import CallOptions, ChatOptions, SamplingOptions
from fairlead.prompt import Message, as_chat, as_prompt, as_sampling, as_text
from fairlead.responses import Responses
from fairlead.retries import Retries
from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.rpc.connecting import unreachable
from fairlead.rpc.status import REQUEST_ID_METADATA, from_call
from fairlead.stream import Stream
from fairlead.tracing import current_traceparent
from fairlead.v1 import common_pb2, inference_pb2

DEFAULT_ADDRESS = "127.0.0.1:7000"
API_KEY = "FAIRLEAD_API_KEY"  # the environment variable
CONTROL_SECONDS = 10.0  # for calls that generate nothing
R = TypeVar("R")


class Client:
    """A client of one gateway; use it as a context manager, or `close` it.

    `address` is host or host:port, or https://host:port for a gateway with TLS. `api_key` is by default the value of
    the environment variable FAIRLEAD_API_KEY. The client connects when the first call is made. It can be used in any
    event loop, also in several one after the other. Calls take the keyword arguments that CallOptions and, for chats,
    ChatOptions document, and `app`, which is by default the client's. A call that does not complete raises a
    FairleadError.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        api_key: str | None = None,
        user: str = "",
        app: str = "",
        retries: Retries = Retries(),  # noqa: B008 - frozen
    ) -> None:
        self._connections = Connections(gateway_target(address))
        self._app = app
        self._retries = retries
        key = os.environ.get(API_KEY, "") if api_key is None else api_key
        if not (key.isascii() and key.isprintable()):
            raise InvalidRequest("must be printable ASCII", "api_key")  # the message must not repeat the key
        if not (user.isascii() and user.isprintable()):
            raise InvalidRequest(f"must be printable ASCII, got {user!r}", "user")
        self._metadata = [("authorization", f"Bearer {key}")] if key else []
        if user:
            self._metadata.append(("x-fairlead-user", user))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel the calls in progress and disconnect; later calls raise Closed."""
        await self._connections.close()

    async def generate(
        self, prompt: str | Sequence[int], *, app: str = "", **options: Unpack[CallOptions]
    ) -> Completion:
        """Complete a text or a sequence of token ids, and return the whole output."""
        return await self.stream(prompt, app=app, **options).wait()

    async def chat(self, messages: Sequence[Message], *, app: str = "", **options: Unpack[ChatOptions]) -> Completion:
        """Answer a conversation; a message is a mapping with `role` and `content`, or a pair of both."""
        return await self.stream_chat(messages, app=app, **options).wait()

    def stream(self, prompt: str | Sequence[int], *, app: str = "", **options: Unpack[CallOptions]) -> Stream:
        """Complete a text or a sequence of token ids; the returned stream yields the output in chunks."""
        return self.start(as_prompt(prompt), app=app, **options)

    def stream_chat(self, messages: Sequence[Message], *, app: str = "", **options: Unpack[ChatOptions]) -> Stream:
        """Answer a conversation; the returned stream yields the output in chunks."""
        prompt, others = as_chat(messages, options)
        return self.start(prompt, app=app, **others)

    def interaction(self, *, app: str = "") -> Interaction:
        """Return an interaction, a group of calls; it is an asynchronous context manager and ends on exit."""
        return Interaction(self.start, self.end, app or self._app)

    async def models(self) -> list[inference_pb2.Model]:
        """Return the models that the gateway now serves."""
        stub, request = self._connections.stub(), inference_pb2.ListModelsRequest()
        response: inference_pb2.ListModelsResponse = await self._answer(
            stub.ListModels(request, timeout=CONTROL_SECONDS, metadata=self._metadata)
        )
        return list(response.models)

    def start(
        self,
        prompt: common_pb2.Prompt,
        *,
        model: str | None = None,
        app: str = "",
        interaction: inference_pb2.Interaction | None = None,
        timeout: float | None = None,
        each_token: bool | None = None,
        parent: str = "",
        on_accepted: Callable[[inference_pb2.Accepted], None] = lambda _: None,
        **sampling: Unpack[SamplingOptions],
    ) -> Stream:
        """Start a call with a prepared prompt; `parent` is its W3C traceparent, by default that of the current span."""
        streaming = inference_pb2.STREAMING_EACH_TOKEN if each_token else inference_pb2.STREAMING_COALESCED
        request = inference_pb2.GenerateRequest(
            model=as_text(model or "", "model"),
            prompt=prompt,
            sampling=as_sampling(sampling),
            app=as_text(app or self._app, "app"),
            interaction=interaction,
            streaming=streaming,
        )
        # The client's own id finds the call in the gateway's log even if no response, with the gateway's id, arrived.
        request_id = secrets.token_hex(8)
        metadata = [*self._metadata, (REQUEST_ID_METADATA, request_id)]
        if parent := parent or current_traceparent():
            metadata.append(("traceparent", parent))

        def make(left: float | None) -> grpc.aio.UnaryStreamCall:
            return self._connections.stub().Generate(request, timeout=left, metadata=metadata)

        return Stream(Responses(make, partial(self._failure, request_id), self._retries, timeout), on_accepted)

    async def end(self, app: str, interaction: inference_pb2.Interaction) -> None:
        """End `interaction` at the gateway: no further call of it will follow."""
        stub, request = self._connections.stub(), inference_pb2.EndInteractionRequest(app=app, interaction=interaction)
        await self._answer(stub.EndInteraction(request, timeout=CONTROL_SECONDS, metadata=self._metadata))

    async def _answer(self, call: Awaitable[R]) -> R:
        try:
            return await call
        except asyncio.CancelledError:
            reraise_cancellation()
            raise Closed("the client was closed during the call") from None
        except grpc.aio.AioRpcError as error:
            reraise_cancellation()
            raise self._failure("", error) from error

    def _failure(self, request_id: str, error: grpc.aio.AioRpcError) -> FairleadError:
        """Return the error of a failed call; it carries `request_id` if the call was sent without a gateway's id."""
        never_made = unreachable(error, self._connections.target)
        if never_made is not None:
            return never_made
        failure = from_call(error)
        failure.request_id = failure.request_id or request_id
        return failure
