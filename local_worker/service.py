"""The worker's gRPC services: sessions with gateways, and the tokenizer."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial

import grpc

from fairlead.errors import Cancelled, FairleadError, InvalidRequest, TooLong, Unavailable
from fairlead.rpc.channel import MAX_MESSAGE_BYTES
from fairlead.v1 import worker_pb2, worker_pb2_grpc
from local_worker.attempt import AttemptEnded, AttemptEvents, Submission
from local_worker.backend import Backend, Encoder
from local_worker.compilations import Compilations
from local_worker.core.token_gatherer import TokenGatherer
from local_worker.fair_executor import FairExecutor
from local_worker.messages import add_events, prompt_from, submission_from, to_encode_response
from local_worker.step_events import Sink, StepEvents
from serving.rpc.coalescing_writer import CoalescingWriter

log = logging.getLogger(__name__)


class GatewaySession:
    """The outgoing events of one gateway's stream.

    If the gateway reads slower than the engine computes, one message carries the events of several steps.
    """

    def __init__(self) -> None:
        self.writer = CoalescingWriter(worker_pb2.StepEvents)

    def put(self, events: AttemptEvents) -> None:
        """Queue `events` for writing after all earlier ones."""
        add_events(self.writer.pending, events)
        self.writer.flush()


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """The service that passes submissions to the backend and routes its events back to the sessions.

    One timer serves the tokens that are gathered for all sessions.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._compilations = Compilations(backend)
        self._gatherer: TokenGatherer[tuple[Sink, str, int]] = TokenGatherer()  # by request id and attempt
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    def deliver(self, out: StepEvents) -> None:
        """Route the events of one turn, and gather its tokens; must be called on the event loop."""
        now = asyncio.get_running_loop().time()
        leaving: dict[Sink, AttemptEvents] = {}
        for sink, events in out.events.items():
            for output in events.tokens:
                self._gatherer.add((sink, output.request_id, output.attempt), output, now)
            for ended in events.ended:
                self._gatherer.end((sink, ended.request_id, ended.attempt))
            if events.started or events.ended:
                leaving[sink] = AttemptEvents(started=events.started, ended=events.ended)
        self._send(leaving, now)
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._gatherer and not self._compilations:
            self._idle.set()

    def _send(self, leaving: dict[Sink, AttemptEvents], now: float) -> None:
        for (sink, _, _), output in self._gatherer.take(now):
            leaving.setdefault(sink, AttemptEvents()).tokens.append(output)
        for sink, events in leaving.items():
            if isinstance(sink, GatewaySession):
                sink.put(events)
        due = self._gatherer.due
        if due is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        self._timer = None
        # The clock may be a little before the time for which the timer was set.
        self._send({}, max(due, asyncio.get_running_loop().time()))

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
            self._compilations.cancel_all(session)
            self._note_idle()
            self._backend.abort_all(session)

    async def _read(self, session: GatewaySession, commands: AsyncIterator[worker_pb2.SessionCommands]) -> None:
        try:
            async for message in commands:
                for submit in message.submits:
                    self._submit(session, submit)
                for abort in message.aborts:
                    self._abort(session, abort)
        finally:
            session.writer.close()

    def _submit(self, session: GatewaySession, submit: worker_pb2.Submit) -> None:
        if self.draining:
            self._refuse(session, submit, Unavailable("the worker is draining"))
            return
        try:
            submission = submission_from(submit)
        except FairleadError as error:
            self._refuse(session, submit, error)
            return
        self._idle.clear()
        if constraint := submission.sampling.constraint:
            self._compilations.add(session, submission, constraint, partial(self._compiled, session, submit))
        else:
            self._enter(session, submit, submission)

    def _compiled(self, session: GatewaySession, submit: worker_pb2.Submit, result: Submission | FairleadError) -> None:
        if isinstance(result, FairleadError):
            self._refuse(session, submit, result)
        else:
            self._enter(session, submit, result)

    def _enter(self, session: GatewaySession, submit: worker_pb2.Submit, submission: Submission) -> None:
        try:
            self._backend.submit(session, submission)
        except FairleadError as error:
            self._refuse(session, submit, error)
            return
        self._gatherer.begin((session, submit.request_id, submit.attempt), max(1, submit.tokens_per_message))

    def _abort(self, session: GatewaySession, abort: worker_pb2.Abort) -> None:
        if self._compilations.cancel(session, abort.request_id, abort.attempt):
            self._refuse(session, abort, Cancelled("cancelled by the caller"))
        else:
            self._backend.abort(session, abort.request_id, abort.attempt)

    def _refuse(
        self, session: GatewaySession, refused: worker_pb2.Submit | worker_pb2.Abort, error: FairleadError
    ) -> None:
        field = error.field if isinstance(error, InvalidRequest) else ""
        ended = AttemptEnded(refused.request_id, refused.attempt, error.outcome, message=error.message, field=field)
        session.put(AttemptEvents(ended=[ended]))
        self._note_idle()

    async def drain(self) -> None:
        """Refuse new requests from now on, and return when no accepted request is left."""
        self.draining = True
        await self._idle.wait()


class TokenizerService(worker_pb2_grpc.TokenizerServicer):
    """The service that encodes prompts and decodes tokens, and divides its time fairly among clients by their bytes."""

    def __init__(self, encoder: Encoder, turns: FairExecutor) -> None:
        self._encoder = encoder
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
        reply = worker_pb2.DecodeResponse(text=self._encoder.decode(request.token_ids, request.model))
        _check_size(reply.ByteSize(), "tokens")
        return reply

    def _encode(self, request: worker_pb2.EncodeRequest) -> worker_pb2.EncodeResponse:
        reply = to_encode_response(self._encoder.encode(prompt_from(request)))
        _check_size(reply.ByteSize(), "prompt")
        return reply


def _check_size(size: int, field: str) -> None:
    """Raise TooLong, which names the request's field, for a reply that no message can carry: gRPC logs a traceback."""
    if size > MAX_MESSAGE_BYTES:
        raise TooLong(f"what is made of it has at most {MAX_MESSAGE_BYTES} bytes, got {size}", field)
