"""Interceptors of a gRPC server: the gate at which calls arrive, and their authorization before a message is read.

They convert a method's incoming messages and its errors.
"""

import asyncio
import hmac
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from operator import methodcaller
from typing import Any

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from fairlead.errors import FairleadError, InvalidRequest, Unauthenticated
from fairlead.rpc.status import to_status
from serving.rpc.channel import SECRET_METADATA
from serving.rpc.concurrency_limiter import ConcurrencyLimiter
from serving.rpc.message_body_limiter import SECONDS, MessageBodyLimiter
from serving.wire import parsed

QUIET_SECONDS = 0.05  # without a new call: then gRPC has handed over all that it had received
MOST_SECONDS = 1.0  # new calls may come for ever
OPEN = (health.SERVICE_NAME, reflection.SERVICE_NAME)  # services that need neither a secret nor a key
OPEN_BYTES = 4096  # largest request to them; their requests are names
OPEN_ARRIVING = 8  # messages to them that arrive at a time
OPEN_PATIENCE = 0.1  # seconds; short, because probes often have a deadline of 1 second
OPEN_STREAMS = 1000

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]
Receive = Callable[[grpc.aio.ServicerContext], Awaitable[Any]]  # returns the next message's bytes, or grpc.aio.EOF


READ: Receive = methodcaller("read")


async def only(receive: Receive, context: grpc.aio.ServicerContext) -> bytes:
    """Return the bytes of a unary call's message; raise InvalidRequest if the call carries none."""
    data = await receive(context)
    if data is grpc.aio.EOF:
        raise InvalidRequest("the call carries one message, got none")
    return bytes(data)


def incoming(handler: grpc.RpcMethodHandler, receive: Receive) -> grpc.RpcMethodHandler:
    """Return `handler` with messages that `receive` reads; a FairleadError that it raises ends the call as a status.

    To gRPC every method then takes a stream, so that no message is read before `receive` reads it.
    """
    method = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

    async def messages(context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        while (data := await receive(context)) is not grpc.aio.EOF:
            yield parsed(handler.request_deserializer, data)

    async def taken(context: grpc.aio.ServicerContext) -> Any:
        if handler.request_streaming:
            return messages(context)
        return parsed(handler.request_deserializer, await only(receive, context))

    async def answer(_: object, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await method(await taken(context), context)
        except FairleadError as error:
            status = to_status(error)
        except NotImplementedError:  # of the health service; gRPC would log a traceback
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")  # as of one that is unknown
        await context.abort_with_status(status)

    async def stream(_: object, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        try:
            async with aclosing(method(await taken(context), context)) as responses:
                async for response in responses:
                    yield response
            return
        except FairleadError as error:
            status = to_status(error)
        await context.abort_with_status(status)

    if not handler.response_streaming:
        return grpc.stream_unary_rpc_method_handler(answer, None, handler.response_serializer)
    # A method that writes its responses through the context is a coroutine, not an asynchronous generator.
    responding = answer if inspect.iscoroutinefunction(method) else stream
    return grpc.stream_stream_rpc_method_handler(responding, None, handler.response_serializer)


class ArrivalGate(grpc.aio.ServerInterceptor):
    """Lets calls to their handlers, and counts them.

    gRPC ends calls with CANCELLED that it has received and not handed over when its server stops (grpc/grpc#41785). It
    hands them over one by one, so they queue while handlers run. A server therefore closes the gate, stops once the
    queue is empty, and opens the gate: the calls that waited at it are served like those that were there before.
    """

    def __init__(self) -> None:
        self._arrived = 0
        self._open = asyncio.Event()
        self._open.set()

    async def intercept_service(
        self, continuation: Continuation, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """See grpc.aio.ServerInterceptor."""
        self._arrived += 1
        await self._open.wait()
        return await continuation(details)

    async def close(self) -> None:
        """Hold new calls; return when for QUIET_SECONDS none has come, or after MOST_SECONDS."""
        self._open.clear()
        for _ in range(round(MOST_SECONDS / QUIET_SECONDS)):
            before = self._arrived
            await asyncio.sleep(QUIET_SECONDS)
            if self._arrived == before:
                return

    def open(self) -> None:
        """Let the held calls and all further ones pass."""
        self._open.set()


REFUSAL = to_status(
    Unauthenticated(f"metadata {SECRET_METADATA}: missing or wrong; this call carries the cluster's or admin's secret")
)


def carries_one_of(secrets: Iterable[str], metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Return whether a call carries one of `secrets`; each comparison takes constant time."""
    given = dict(metadata).get(SECRET_METADATA, "")
    return isinstance(given, str) and any(hmac.compare_digest(given.encode(), secret.encode()) for secret in secrets)


async def _refuse(_: Any, context: grpc.aio.ServicerContext) -> None:
    await context.abort_with_status(REFUSAL)


REFUSE = grpc.stream_stream_rpc_method_handler(_refuse)


class SecretInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls that carry no secret of their service. `secrets` maps a service's full name to those it accepts.

    The open services, health and reflection, accept calls without a secret; their arriving messages, message sizes and
    streams are limited. A service that is neither open nor in `secrets` authenticates its callers itself.
    """

    def __init__(self, secrets: Mapping[str, Sequence[str]]) -> None:
        self._secrets = secrets
        self._bodies = MessageBodyLimiter(OPEN_ARRIVING, SECONDS, OPEN_PATIENCE)
        self._streams = ConcurrencyLimiter(OPEN_STREAMS, "health and reflection streams are open")

    async def intercept_service(
        self, continuation: Continuation, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """Return the handler for one call: the method's own, a limited one, or one that refuses the call."""
        handler = await continuation(details)
        if handler is None:
            return None
        service = service_of(details.method)
        if service in OPEN:
            return incoming(handler, self._stream() if handler.response_streaming else self._short)
        secrets = self._secrets.get(service)
        if secrets is None:
            return handler
        return incoming(handler, READ) if carries_one_of(secrets, details.invocation_metadata) else REFUSE

    async def _short(self, context: grpc.aio.ServicerContext) -> Any:
        data = await self._bodies.receive(context)
        if data is not grpc.aio.EOF and len(data) > OPEN_BYTES:
            raise InvalidRequest(f"the request must have at most {OPEN_BYTES} bytes, got {len(data)}")
        return data

    def _stream(self) -> Receive:
        """Return a receiver for one call, which counts the call's stream from its first message on."""
        has_entered = False

        async def receive(context: grpc.aio.ServicerContext) -> Any:
            nonlocal has_entered
            if not has_entered:
                connection = context.peer()
                self._streams.enter(connection)
                context.add_done_callback(lambda _: self._streams.leave(connection))
                has_entered = True
            return await self._short(context)

        return receive


def service_of(method: str) -> str:
    """Return the full name of the service in a method's path /package.Service/Method."""
    return method.rpartition("/")[0].removeprefix("/")
