"""The worker's gRPC services: sessions with gateways, and the tokenizer."""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator
from functools import partial

import grpc

from fairlead.errors import Cancelled, FairleadError, TooLong, Unavailable
from fairlead.rpc.channel import MAX_MESSAGE_BYTES
from fairlead.v1 import worker_pb2, worker_pb2_grpc
from local_worker.backend import Backend
from local_worker.compilations import Compilations
from local_worker.core.delivery import Delivery, by_owner
from local_worker.core.events import RequestEvents, WorkerUpdate
from local_worker.core.request import Request
from local_worker.fair_executor import FairExecutor
from local_worker.prompt_encoder import PromptEncoder
from local_worker.wire import add_events, add_refusal, content_from, request_from
from serving.rpc.coalescing_writer import CoalescingWriter

log = logging.getLogger(__name__)


class GatewaySession:
    """The outgoing events of one gateway's stream, which owns the requests that it submitted.

    If the gateway reads slower than the engine computes, one message carries the events of several steps.
    """

    def __init__(self) -> None:
        self.writer = CoalescingWriter(worker_pb2.StepEvents)

    def put(self, events: RequestEvents) -> None:
        """Queue `events` for writing after all earlier ones."""
        add_events(self.writer.pending, events)
        self.writer.flush()

    def refuse(self, request_id: str, attempt: int, error: FairleadError) -> None:
        """Queue the end of a request that has not entered."""
        add_refusal(self.writer.pending, request_id, attempt, error)
        self.writer.flush()


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """The service that passes requests to the backend and routes its events back to the sessions.

    One timer serves the tokens that are gathered for all sessions.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._compilations = Compilations(backend)
        self._delivery = Delivery()
        self._arrivals = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    def deliver(self, update: WorkerUpdate) -> None:
        """Route the events of one turn, and gather its tokens; must be called on the event loop."""
        self._send(self._delivery.deliver(update.events, asyncio.get_running_loop().time()))
        if update.events.ended:
            self._note_idle()

    def _note_idle(self) -> None:
        if not self._delivery:
            self._idle.set()

    def _send(self, leaving: RequestEvents) -> None:
        for owner, events in by_owner(leaving).items():
            if isinstance(owner, GatewaySession):
                owner.put(events)
        due = self._delivery.due
        if due is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        self._timer = None
        # The clock may be a little before the time for which the timer was set.
        now = max(due, asyncio.get_running_loop().time())
        self._send(RequestEvents(tokens=self._delivery.take(now)))

    async def Session(
        self, request_iterator: AsyncIterator[worker_pb2.SessionCommands], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[worker_pb2.StepEvents]:
        """Serve one gateway's stream, as worker.proto describes. This generator is the stream's only writer."""
        session = GatewaySession()
        reader = asyncio.create_task(self._read(session, request_iterator))
        try:
            async for events in session.writer.messages():
                yield events
            reader.result()
        finally:
            reader.cancel()
            for request in self._delivery.owned_by(session):
                self._abort(session, request)
            self._note_idle()

    async def _read(self, session: GatewaySession, commands: AsyncIterator[worker_pb2.SessionCommands]) -> None:
        try:
            async for message in commands:
                for submit in message.submits:
                    self._submit(session, submit)
                for abort in message.aborts:
                    request = self._delivery.find(session, abort.request_id, abort.attempt)
                    if request is not None:
                        self._abort(session, request)
        finally:
            session.writer.close()

    def _submit(self, session: GatewaySession, submit: worker_pb2.Submit) -> None:
        try:
            if self.draining:
                raise Unavailable("the worker is draining")
            arrival, now = next(self._arrivals), time.monotonic()
            request = request_from(submit, self._backend.prompts, session, arrival, now)
        except FairleadError as error:
            session.refuse(submit.request_id, submit.attempt, error)
            return
        if not self._delivery.open(request):
            return
        self._idle.clear()
        if constraint := request.sampling.constraint:
            self._compilations.add(request, constraint, partial(self._compiled, session, request))
        else:
            self._enter(session, request)

    def _compiled(self, session: GatewaySession, request: Request, error: FairleadError | None) -> None:
        if error is None:
            self._enter(session, request)
        else:
            self._refuse(session, request, error)

    def _enter(self, session: GatewaySession, request: Request) -> None:
        request.queued_at = time.monotonic()
        try:
            self._backend.submit(request)
        except FairleadError as error:
            self._refuse(session, request, error)

    def _abort(self, session: GatewaySession, request: Request) -> None:
        if self._compilations.cancel(request):
            self._refuse(session, request, Cancelled("cancelled by the caller"))
        else:
            self._backend.abort(request)

    def _refuse(self, session: GatewaySession, request: Request, error: FairleadError) -> None:
        self._delivery.close(request)
        session.refuse(request.id, request.attempt, error)
        self._note_idle()

    async def drain(self) -> None:
        """Refuse new requests from now on, and return when no accepted request is left."""
        self.draining = True
        await self._idle.wait()


class TokenizerService(worker_pb2_grpc.TokenizerServicer):
    """The service that encodes prompts and decodes tokens, and divides its time fairly among clients by their bytes."""

    def __init__(self, prompts: PromptEncoder, turns: FairExecutor) -> None:
        self._prompts = prompts
        self._executor = turns

    async def Encode(
        self, request: worker_pb2.EncodeRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.EncodeResponse:
        """Encode one prompt, as worker.proto describes."""
        return await self._encoded(request)

    async def _encoded(self, request: worker_pb2.EncodeRequest) -> worker_pb2.EncodeResponse:
        """Return one prompt's tokens; they are made outside the event loop, because a long chat takes milliseconds."""
        size = max(1, request.prompt.ByteSize())
        return await self._executor.run(request.client, size, partial(self._encode, request))

    async def EncodeShort(
        self, request_iterator: AsyncIterator[worker_pb2.ShortPrompts], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[worker_pb2.EncodedPrompts]:
        """Encode the prompts of one gateway's stream. This generator is the stream's only writer."""
        writer = CoalescingWriter(worker_pb2.EncodedPrompts)
        reader = asyncio.create_task(self._read(request_iterator, writer))
        try:
            async for encoded in writer.messages():
                yield encoded
            reader.result()
        finally:
            reader.cancel()

    async def _read(
        self, batches: AsyncIterator[worker_pb2.ShortPrompts], writer: CoalescingWriter[worker_pb2.EncodedPrompts]
    ) -> None:
        malformed: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                async for batch in batches:
                    for prompt in batch.prompts:
                        tasks.create_task(self._answer(prompt, writer))
        except* FairleadError as failed:  # the caller is told the error itself, not the group
            malformed = failed.exceptions[0]
        finally:
            writer.close()
        if malformed is not None:
            raise malformed

    async def _answer(
        self, prompt: worker_pb2.ShortPrompt, writer: CoalescingWriter[worker_pb2.EncodedPrompts]
    ) -> None:
        encoded = worker_pb2.EncodedPrompt(number=prompt.number)
        with contextlib.suppress(FairleadError):  # the gateway asks again by Encode, which tells the reason
            encoded.response.CopyFrom(await self._encoded(prompt.request))
        writer.pending.encoded.append(encoded)
        writer.flush()

    async def Decode(
        self, request: worker_pb2.DecodeRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.DecodeResponse:
        """Decode tokens, as worker.proto describes, outside the event loop and in the client's turn."""
        size = max(1, len(request.token_ids))
        return await self._executor.run(request.client, size, partial(self._decode, request))

    def _decode(self, request: worker_pb2.DecodeRequest) -> worker_pb2.DecodeResponse:
        reply = worker_pb2.DecodeResponse(text=self._prompts.decode(request.token_ids, request.model))
        _check_size(reply.ByteSize(), "tokens")
        return reply

    def _encode(self, request: worker_pb2.EncodeRequest) -> worker_pb2.EncodeResponse:
        reply = self._prompts.encode(request, content_from(request.prompt))
        _check_size(reply.ByteSize(), "prompt")
        return reply


def _check_size(size: int, field: str) -> None:
    """Raise TooLong, which names the request's field, for a reply that no message can carry: gRPC logs a traceback."""
    if size > MAX_MESSAGE_BYTES:
        raise TooLong(f"what is made of it has at most {MAX_MESSAGE_BYTES} bytes, got {size}", field)
