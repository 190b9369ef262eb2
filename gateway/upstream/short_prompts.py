"""A worker's stream for short prompts: an exchange over it costs the gateway a fifth of a call of its own."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import count

import grpc

from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.v1 import worker_pb2
from serving.rpc.coalescing_writer import CoalescingWriter

log = logging.getLogger(__name__)
SHORT_PROMPT = 16 * 1024  # bytes; the answer to a longer one would delay those behind it
Batches = AsyncIterator[worker_pb2.ShortPrompts]
Open = Callable[[Batches], grpc.aio.StreamStreamCall[worker_pb2.ShortPrompts, worker_pb2.EncodedPrompts]]
Answer = asyncio.Future[worker_pb2.EncodeResponse | None]


class ShortPrompts:
    """The prompts that one worker is tokenizing over one stream, which is opened when there is one to send."""

    def __init__(self, open_stream: Open) -> None:
        self._open = open_stream
        self._numbers = count()
        self._answers: dict[int, Answer] = {}
        self._writer: CoalescingWriter[worker_pb2.ShortPrompts] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._is_implemented = True  # by the worker, as far as is known

    def encode(self, request: worker_pb2.EncodeRequest) -> Answer:
        """Tokenize a prompt; the result is None if the stream cannot answer: Encode then answers or raises the reason.

        A caller that no longer needs the result cancels it.
        """
        answer: Answer = asyncio.get_running_loop().create_future()
        if not self._is_implemented:
            answer.set_result(None)
            return answer
        if self._writer is None:
            self._writer = CoalescingWriter(worker_pb2.ShortPrompts)
            self._reader = asyncio.create_task(self._read(self._writer, self._answers))
        number, answers = next(self._numbers), self._answers
        answers[number] = answer
        answer.add_done_callback(lambda _: answers.pop(number, None))
        self._writer.pending.prompts.add(number=number, request=request)
        self._writer.flush()
        return answer

    async def close(self) -> None:
        """Close the stream; what it has not answered is not answered."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def _read(self, writer: CoalescingWriter[worker_pb2.ShortPrompts], answers: Mapping[int, Answer]) -> None:
        call = self._open(writer.messages())
        try:
            async for batch in call:
                for encoded in batch.encoded:
                    _answer(answers.get(encoded.number), encoded.response if encoded.HasField("response") else None)
        except grpc.aio.AioRpcError as error:
            reraise_cancellation()
            self._is_implemented = error.code() is not grpc.StatusCode.UNIMPLEMENTED
        finally:
            call.cancel()
            writer.close()
            self._writer, self._answers = None, {}
            for answer in answers.values():
                _answer(answer, None)


def _answer(waiting: Answer | None, response: worker_pb2.EncodeResponse | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(response)
