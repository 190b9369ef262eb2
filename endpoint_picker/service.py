"""The gRPC service that Envoy asks: envoy.service.ext_proc.v3.ExternalProcessor."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

from endpoint_picker import answers
from endpoint_picker.following_stream import FollowingStream
from endpoint_picker.held_bodies import HeldBodies
from endpoint_picker.open_request import OpenRequest
from endpoint_picker.picker import Picker, Refused
from endpoint_picker.request_stream import RequestStream
from endpoint_picker.token_prompts import PromptReader
from fairlead.errors import InvalidRequest
from serving.envoy import ext_proc_pb2, ext_proc_pb2_grpc

NAME = "envoy.service.ext_proc.v3.ExternalProcessor"


class ExternalProcessor(ext_proc_pb2_grpc.ExternalProcessorServicer):
    """Answers one stream for each HTTP request; the stream's end is the request's end."""

    def __init__(self, picker: Picker, objectives: Mapping[str, int], read: PromptReader, bodies: HeldBodies) -> None:
        self._picker = picker
        self._read = read
        self._objectives = objectives
        self._streams: dict[asyncio.Task[Any], RequestStream | FollowingStream] = {}
        self.placed: WeakValueDictionary[str, OpenRequest] = WeakValueDictionary()  # by the picker's id
        self._bodies = bodies
        self._is_leaving = False

    def leave(self) -> None:
        """End the streams of requests whose answers have begun; Envoy goes on without a stream that ends in order."""
        self._is_leaving = True
        for task in [task for task, stream in self._streams.items() if stream.is_answered]:
            task.cancel()

    async def Process(self, request_iterator: AsyncIterator[ext_proc_pb2.ProcessingRequest], context: Any) -> None:
        """Choose the endpoint of one request, and follow the request to its end."""
        task = asyncio.current_task()
        assert task is not None
        stream: RequestStream | FollowingStream = RequestStream(
            self._picker, self._objectives, self._read, self.placed, self._bodies
        )
        try:
            while (message := await self._next(request_iterator, stream, context)) is not None:
                if message.observability_mode and isinstance(stream, RequestStream):
                    stream = FollowingStream(self.placed)
                self._streams[task] = stream
                await _write(await stream.handle(message), stream, context)
        except Refused as refused:
            await context.write(answers.refusal(refused.status, refused.reason, str(refused)))
        except InvalidRequest as error:
            await context.write(answers.refusal(400, "invalid-request", str(error)))
        except asyncio.CancelledError:
            if not self._is_leaving:
                raise
        finally:
            self._streams.pop(task, None)
            stream.close()

    async def _next(
        self,
        messages: AsyncIterator[ext_proc_pb2.ProcessingRequest],
        stream: RequestStream | FollowingStream,
        context: Any,
    ) -> ext_proc_pb2.ProcessingRequest | None:
        """Return the next message, or None after the last; place a request meanwhile whose body takes too long."""
        if stream.patience is None:
            return await anext(messages, None)
        reading = asyncio.ensure_future(anext(messages, None))
        try:
            await asyncio.wait({reading}, timeout=stream.patience)
            if not reading.done():
                await _write(await stream.place_held(), stream, context)
            return await reading
        finally:
            reading.cancel()


async def _write(
    responses: list[ext_proc_pb2.ProcessingResponse], stream: RequestStream | FollowingStream, context: Any
) -> None:
    for response in responses:
        await context.write(response)
    stream.written()
