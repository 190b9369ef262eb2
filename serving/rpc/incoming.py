"""Conversion of a method's incoming messages and of its errors."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc

from fairlead.errors import FairleadError, InvalidRequest
from fairlead.rpc.status import to_status
from serving.wire import parsed

Receive = Callable[[grpc.aio.ServicerContext], Awaitable[Any]]  # returns the next message's bytes, or grpc.aio.EOF


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
