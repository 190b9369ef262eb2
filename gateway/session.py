"""One admitted request's life: placed on a worker, streamed, placed again when the worker is lost, ended once."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from fairlead.errors import Unavailable, error_for
from fairlead.outcomes import FinishReason, Outcome
from fairlead.token_ids import TOKEN_BYTES
from fairlead.v1 import common_pb2, inference_pb2, scheduler_pb2, worker_pb2
from gateway.call import Call
from gateway.core.attempts import MAX_ATTEMPTS, Attempts
from gateway.core.coalescer import Chunk, Coalescer
from gateway.upstream.cluster import Cluster
from gateway.upstream.workers import Attempt, Event, Lost
from serving.sampling import Sampling
from serving.wire import sampling_to_proto


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An admitted request: everything a worker needs, frozen."""

    request_id: str
    client: str
    model: str
    token_ids: bytes
    digests: bytes
    revision: str  # of the model that they are for
    system_tokens: int
    sampling: Sampling
    weight: float
    in_interaction: bool
    interaction_token: bytes
    cache_scope: str
    public_tokens: int  # of the prompt, in its beginning: shared by every cache scope
    deadline: float | None  # loop time
    tokens_per_message: int


class Session:
    """Runs `work` until its last response, and notes in `call` how far it came.

    The output depends only on prompt, seed and position, and a worker derives text from all generated tokens: an
    attempt that is given the tokens so far goes on exactly where the lost one stopped.
    """

    def __init__(self, cluster: Cluster, work: Work, call: Call) -> None:
        call.usage.prompt_tokens = len(work.token_ids) // TOKEN_BYTES
        call.usage.system_tokens = work.system_tokens
        self._call = call
        self._cluster = cluster
        self._work = work
        self._generated: list[bytes] = []
        self._attempts = Attempts()
        self._attempt: Attempt | None = None
        self._service = 0.0  # charged by earlier attempts
        self._accepted = False  # the caller has been told so, once
        self._welcome: worker_pb2.Started | None = None  # what the caller is to be told next
        self._last: Lost | worker_pb2.Ended | None = None  # what this attempt said last
        self._chunk = Coalescer(work.tokens_per_message)
        self._stirred = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    async def responses(self) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """What the caller receives; raises the FairleadError of an outcome other than COMPLETED."""
        await self._place()
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            if self._welcome is not None:
                started, self._welcome = self._welcome, None
                yield self._accept(started)
            while self._chunk.ready(self._loop.time()):
                yield _chunk(self._chunk.take())
            match self._last:
                case Lost() | worker_pb2.Ended(outcome=Outcome.UNAVAILABLE):
                    await self._place_again()
                case worker_pb2.Ended() as ended:
                    for response in self._end(ended):
                        yield response
                    return

    @property
    def is_complete(self) -> bool:
        """Whether the worker has said its last: what the caller has still to read waits here."""
        return self._last is not None

    def close(self) -> None:
        """Free the request at its worker, and its place if that cannot be reached; does nothing after its end."""
        if self._attempt is not None:
            self._attempt.abort()
            self._withdraw_unstarted()
        if self._timer is not None:
            self._timer.cancel()

    def _receive(self, event: Event) -> None:
        """From the worker, as it comes: a token wakes the stream to the caller only when a message is due."""
        match event:
            case worker_pb2.Tokens():
                self._hold(event)
                self._look()
            case worker_pb2.Started():
                self._attempts.entered()
                self._charge(event.service)
                self._call.timings.scheduled = self._call.timings.scheduled or time.time_ns()
                if not self._accepted:
                    self._accepted, self._welcome = True, event
                    self._stirred.set()
            case _:
                self._last = event
                self._stirred.set()

    def _look(self) -> None:
        if self._chunk.ready(self._loop.time()):
            self._stirred.set()
        elif self._timer is None and self._chunk.due is not None:
            self._timer = self._loop.call_at(self._chunk.due, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._look()

    async def _place(self) -> None:
        work, call, attempts, self._last = self._work, self._call, self._attempts, None
        attempts.begin()
        call.attempts = attempts.number
        request = scheduler_pb2.DispatchRequest(
            request_id=work.request_id,
            attempt=attempts.number,
            client=work.client,
            model=work.model,
            digests=work.digests,
            revision=work.revision,
            prompt_tokens=call.usage.prompt_tokens,
            excluded=attempts.tried,
            weight=work.weight,
        )
        placement = await self._cluster.place(request)
        call.worker, call.matched_tokens = placement.worker, placement.matched_tokens
        call.worker_instance, call.scheduler = placement.instance, placement.scheduler
        attempts.placed(placement.instance)
        call.timings.dispatched = call.timings.dispatched or placement.selected_at
        self._attempt = placement.link.submit(self._submission(), self._receive)

    async def _place_again(self) -> None:
        # A worker sends the last token and the end in one message: what is lost always has budget left.
        self._withdraw_unstarted()
        self._attempt = None
        self._service = self._call.usage.service
        if isinstance(self._last, Lost) and self._cluster.was_away():
            self._attempts.excuse()
        if self._attempts.exhausted:
            raise Unavailable(f"lost {MAX_ATTEMPTS} workers one after the other")
        await self._place()

    def _withdraw_unstarted(self) -> None:
        if not self._attempts.started:
            self._cluster.withdraw(self._work.request_id, self._attempts.number)

    def _submission(self) -> worker_pb2.Submit:
        work, generated = self._work, self._call.usage.output_tokens
        sampling = work.sampling
        remaining = replace(
            sampling,
            max_tokens=sampling.max_tokens - generated,
            min_tokens=max(0, sampling.min_tokens - generated),
        )
        return worker_pb2.Submit(
            request_id=work.request_id,
            attempt=self._attempts.number,
            client=work.client,
            token_ids=b"".join((work.token_ids, *self._generated)),
            generated_tokens=generated,
            sampling=sampling_to_proto(remaining),
            weight=work.weight,
            system_tokens=work.system_tokens,
            in_interaction=work.in_interaction,
            charged=self._attempts.charged,
            cache_scope=work.cache_scope,
            public_tokens=work.public_tokens,
            timeout_seconds=0.0 if work.deadline is None else max(0.001, work.deadline - self._loop.time()),
        )

    def _accept(self, started: worker_pb2.Started) -> inference_pb2.GenerateResponse:
        self._call.usage.cached_tokens = started.cached_tokens
        accepted = inference_pb2.Accepted(
            request_id=self._work.request_id,
            model=self._work.model,
            worker=self._call.worker,
            prompt_tokens=self._call.usage.prompt_tokens,
            cached_tokens=started.cached_tokens,
            interaction_token=self._work.interaction_token,
            app=self._call.app,
        )
        return inference_pb2.GenerateResponse(accepted=accepted)

    def _hold(self, tokens: worker_pb2.Tokens) -> None:
        self._call.timings.first_token = self._call.timings.first_token or time.time_ns()
        self._call.usage.output_tokens += len(tokens.token_ids) // TOKEN_BYTES
        self._generated.append(tokens.token_ids)
        self._attempts.advanced()
        self._charge(tokens.service)
        self._chunk.add(tokens.token_ids, tokens.text, self._loop.time(), tokens.logprobs)

    def _charge(self, service: float) -> None:
        self._call.usage.service = self._service + service

    def _end(self, ended: worker_pb2.Ended) -> list[inference_pb2.GenerateResponse]:
        self._charge(ended.usage.service)
        if self._call.attempts == 1:
            self._call.timings.MergeFrom(ended.timings)
        else:  # what the last worker began, an earlier one had begun before
            self._call.timings.finished = ended.timings.finished
        outcome = Outcome(ended.outcome)
        if outcome is not Outcome.COMPLETED:
            raise error_for(outcome, ended.message)
        self._call.finish_reason = FinishReason(ended.finish_reason)
        responses = []
        if ended.text:
            self._chunk.add(b"", ended.text, self._loop.time())
        while self._chunk.due is not None:
            responses.append(_chunk(self._chunk.take()))
        finished = inference_pb2.Finished(
            outcome=ended.outcome, finish_reason=ended.finish_reason, usage=self._call.usage, timings=self._call.timings
        )
        return [*responses, inference_pb2.GenerateResponse(finished=finished)]


def _chunk(chunk: Chunk) -> inference_pb2.GenerateResponse:
    token_ids = common_pb2.TokenIds(packed=chunk.token_ids)
    logprobs = cast("Sequence[common_pb2.TokenLogprobs]", chunk.logprobs)  # as the worker's message carried them
    return inference_pb2.GenerateResponse(
        chunk=inference_pb2.TokenChunk(text=chunk.text, token_ids=token_ids, logprobs=logprobs)
    )
