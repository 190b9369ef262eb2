"""The worker's gRPC side: sessions with gateways, and the tokenizer."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator
from functools import partial

import grpc

from fairlead.errors import FairleadError, InvalidRequest
from fairlead.outcomes import Outcome
from fairlead.v1 import worker_pb2, worker_pb2_grpc
from local_worker.core.job import Job
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request
from local_worker.loop import EngineLoop
from local_worker.outbox import Outbox, Sink
from local_worker.prompts import Prompts
from local_worker.turns import Turns
from serving.blocks import unpack_digests
from serving.cost import MAX_WEIGHT, weight_thousandths
from serving.wire import sampling_from_proto

log = logging.getLogger(__name__)


class GatewaySession:
    """One gateway's stream: the queue between the engine loop and the stream's only writer. None ends the stream."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[worker_pb2.StepEvents | None] = asyncio.Queue()


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """Turns submissions into jobs and routes their events back."""

    def __init__(self, prompts: Prompts, loop: EngineLoop) -> None:
        self._prompts = prompts
        self._loop = loop
        self._arrivals = itertools.count()
        self._open: dict[tuple[Sink, str, int], None] = {}  # jobs without their Ended event
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    def deliver(self, out: Outbox) -> None:
        """Route one turn's events; called on the event loop."""
        for sink, events in out.events.items():
            if isinstance(sink, GatewaySession):
                sink.events.put_nowait(events)
            for ended in events.ended:
                self._open.pop((sink, ended.request_id, ended.attempt), None)
        if not self._open:
            self._idle.set()

    async def Session(
        self, request_iterator: AsyncIterator[worker_pb2.SessionCommands], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[worker_pb2.StepEvents]:
        """See worker.proto. The generator is the stream's only writer."""
        session = GatewaySession()
        reader = asyncio.create_task(self._read(session, request_iterator))
        try:
            while (events := await session.events.get()) is not None:
                yield events
            reader.result()
        finally:
            reader.cancel()
            self._loop.abort_all(session)

    async def _read(self, session: GatewaySession, commands: AsyncIterator[worker_pb2.SessionCommands]) -> None:
        try:
            async for message in commands:
                for submit in message.submits:
                    self._submit(session, submit)
                for abort in message.aborts:
                    self._loop.abort(session, abort.request_id, abort.attempt)
        finally:
            session.events.put_nowait(None)

    def _submit(self, session: GatewaySession, submit: worker_pb2.Submit) -> None:
        if self.draining:
            self._refuse(session, submit, Outcome.UNAVAILABLE, "the worker is draining")
            return
        try:
            job = self._job(session, submit)
        except FairleadError as error:
            self._refuse(session, submit, error.outcome, error.message)
            return
        self._open[session, submit.request_id, submit.attempt] = None
        self._idle.clear()
        self._loop.submit(job)

    def _refuse(self, session: GatewaySession, submit: worker_pb2.Submit, outcome: Outcome, message: str) -> None:
        events = worker_pb2.StepEvents()
        events.ended.add(request_id=submit.request_id, attempt=submit.attempt, outcome=outcome.value, message=message)
        session.events.put_nowait(events)

    def _job(self, session: GatewaySession, submit: worker_pb2.Submit) -> Job[Sink]:
        """Raises InvalidRequest for what no gateway of ours sends: an internal message is checked all the same."""
        ids = self._prompts.check_ids(submit.token_ids, "token_ids")
        if submit.generated_tokens >= len(ids):
            raise InvalidRequest(
                f"must be below the {len(ids)} token ids, got {submit.generated_tokens}", "generated_tokens"
            )
        if not 0 < submit.weight <= MAX_WEIGHT:
            raise InvalidRequest(f"must be above 0 and at most {MAX_WEIGHT}, got {submit.weight}", "weight")
        sampling = sampling_from_proto(submit.sampling)
        if submit.public_tokens > len(ids):
            raise InvalidRequest(
                f"must be at most the {len(ids)} token ids, got {submit.public_tokens}", "public_tokens"
            )
        chain = self._prompts.chain(submit.token_ids, submit.cache_scope, submit.public_tokens)
        request = Request(
            id=submit.request_id,
            client=submit.client,
            tokens=ids,
            prompt_tokens=len(ids),
            digests=list(unpack_digests(chain.digests)),
            chain_seed=chain.seed,
            public_blocks=chain.public_blocks,
            sampling=sampling,
            arrival=next(self._arrivals),
            system_tokens=submit.system_tokens,
            weight=weight_thousandths(submit.weight),
            seed_position=submit.generated_tokens,
            in_interaction=submit.in_interaction,
            paid=submit.charged,
            deadline=time.monotonic() + submit.timeout_seconds if submit.timeout_seconds > 0 else None,
        )
        generated = ids[len(ids) - submit.generated_tokens :]
        return Job(
            owner=session,
            request=request,
            attempt=submit.attempt,
            text=OutputText(self._prompts.tokenizer.decoder(), sampling.stop, generated),
            queued_at=time.monotonic(),
        )

    async def drain(self) -> None:
        """Refuse new requests from now on; return when none is left."""
        self.draining = True
        await self._idle.wait()


class TokenizerService(worker_pb2_grpc.TokenizerServicer):
    """Prompts to token ids and block digests, clients taking turns by the bytes that they ask for."""

    def __init__(self, prompts: Prompts, turns: Turns) -> None:
        self._prompts = prompts
        self._turns = turns

    async def Encode(
        self, request: worker_pb2.EncodeRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.EncodeResponse:
        """See worker.proto. Runs beside the event loop: a long chat takes milliseconds."""
        size = max(1, request.prompt.ByteSize())
        return await self._turns.run(request.client, size, partial(self._prompts.encode, request))
