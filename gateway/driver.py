"""The driver of a call: it executes the commands of the call's state machine and returns the resulting events to it."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator

from fairlead.errors import ClientLimit, FairleadError, Internal
from fairlead.outcomes import FinishReason, Outcome
from fairlead.token_ids import TOKEN_BYTES
from fairlead.v1 import scheduler_pb2, worker_pb2
from gateway.call import Call
from gateway.call_log import CallLog, reason
from gateway.core import call_commands as commands
from gateway.core import call_events as events
from gateway.core.call import CallMachine
from gateway.core.coalescer import OutputChunk
from gateway.core.held_bytes_limiter import HeldBytesLimiter
from gateway.front import Front
from gateway.prepared_request import AdmittedRequest, PreparedRequest
from gateway.upstream.attempt import Attempt, Event, LastTokens, WorkerLost
from gateway.upstream.cluster import Cluster, Placement
from serving.wire import sampling_to_proto

log = logging.getLogger(__name__)
MIN_TIMEOUT = 0.001  # seconds; 0 on the wire means no timeout
Question = commands.Decide | commands.Encode | commands.Place
WRITTEN = events.Written()
# Bytes of what is held: of a token with its text, and of each log-probability that is reported with it.
TOKEN = 64
ALTERNATIVE = 72


class CallDriver:
    """The driver of one call; the call's machine makes all decisions."""

    def __init__(
        self,
        front: Front,
        cluster: Cluster,
        call_log: CallLog,
        held_outputs: HeldBytesLimiter,
        call: Call,
        reader_seconds: float,
    ) -> None:
        self._front = front
        self._cluster = cluster
        self._call_log = call_log
        self._held_outputs = held_outputs
        self._call = call
        self._machine = CallMachine(reader_seconds)
        self._loop = asyncio.get_running_loop()
        self._question: Question | None = None  # the next question; its answer has not begun
        self._answering: asyncio.Task[None] | None = None
        self._admitted: AdmittedRequest | None = None
        self._prepared: PreparedRequest | None = None
        self._held = 0  # bytes of output, at most, that the machine held when they were last counted
        self._token_bytes = TOKEN
        self._has_logprobs = False  # otherwise they are not looked for: an empty list costs as much as the tokens
        self._placement: Placement | None = None
        self._attempt: Attempt | None = None
        self._message: commands.Message | None = None  # the next message that `messages` yields
        self._has_written = False  # whether the front has written a message during the current step
        self._waiting: asyncio.Future[None] | None = None  # for a message, or for the call's end
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf

    async def messages(self) -> AsyncIterator[commands.Message]:
        """Yield the messages that the front has not written at once, until the call ends.

        A message counts as written when the next one is requested.
        """
        self._tell(events.Arrived(self._call.deadline))
        while True:
            while self._message is not None:
                message, self._message = self._message, None
                yield message
                self._tell(WRITTEN)
            if self._machine.outcome is not None:
                return
            self._waiting = self._loop.create_future()
            await self._waiting

    def gone(self) -> None:
        """Cancel the call, unless it has ended, and its timer. Fronts call it at the end of every call."""
        self._tell(events.CallerCancelled())
        if self._timer is not None:
            self._timer.cancel()

    def fail(self, error: FairleadError) -> None:
        """End the call with `error`, unless it has ended."""
        self._tell(events.Failed(error))

    def _tell(self, event: events.Event) -> None:
        """Make one step. An error in it is a defect of the gateway; it ends only this call."""
        try:
            self._step(event)
        except Exception:
            self._step(self._defect())

    def _receive(self, message: Event) -> None:
        """Handle an event from the worker at once."""
        try:
            self._step(self._event(message))
            self._count_held()
        except ClientLimit as error:
            self._step(events.Failed(error))
        except Exception:
            self._step(self._defect())

    def _count_held(self) -> None:
        """Raise ClientLimit where the caller does not read, and its client's outputs leave too little memory."""
        growth = self._machine.held_tokens * self._token_bytes - self._held
        if growth > 0:
            self._held_outputs.add(self._call.client, growth)
        elif growth < 0:
            self._held_outputs.remove(self._call.client, -growth)
        self._held += growth

    def _step(self, event: events.Event) -> None:
        machine, now = self._machine, self._loop.time()
        for command in machine.handle(event, now):
            self._carry_out(command)
        while self._has_written:
            self._has_written = False
            for command in machine.handle(WRITTEN, now):
                self._carry_out(command)
        due = machine.next_deadline()
        if due is not None and due < self._timer_due:
            self._arm(due)

    def _defect(self) -> events.Failed:
        log.exception("call failed", extra={"request_id": self._call.request_id})
        return events.Failed(Internal("internal error of the gateway; see its log"))

    def _arm(self, due: float) -> None:
        """Set the only timer to `due`. The machine may need it later than that: an early tick is harmless."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = self._loop.call_at(due, self._tick), due

    def _tick(self) -> None:
        self._timer, self._timer_due = None, math.inf
        self._tell(events.Tick())

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _carry_out(self, command: commands.Command) -> None:
        match command:
            case commands.Send():
                if isinstance(command.message, commands.Accepted):
                    self._note_usage()
                self._has_written = self._front.write(command.message)
                if not self._has_written:
                    self._message = command.message
                    self._wake()
            case commands.Decide() | commands.Encode() | commands.Place():
                self._ask(command)
            case commands.Submit():
                self._submit(command)
            case commands.Abort():
                if self._attempt is not None:
                    self._attempt.abort()
            case commands.Withdraw():
                self._cluster.withdraw(self._call.request_id, command.attempt)
            case commands.End():
                self._end(command.error)
            case commands.HangUp():
                self._front.hang_up(command.error)

    def _ask(self, question: Question) -> None:
        self._question = question
        if self._answering is None:
            self._answering = asyncio.create_task(self._answer_all())

    async def _answer_all(self) -> None:
        """Answer all questions in one task, because most answers lead to the next question."""
        while self._question is not None:
            question, self._question = self._question, None
            self._tell(await self._answer(question))
        self._answering = None

    async def _answer(self, question: Question) -> events.Event:
        try:
            match question:
                case commands.Decide():
                    return await self._decide()
                case commands.Encode():
                    return await self._encode()
                case commands.Place():
                    return await self._place(question)
        except FairleadError as error:
            return events.Failed(error.with_traceback(None))  # its frames would keep the request in memory
        except Exception:
            return self._defect()

    async def _decide(self) -> events.Decided:
        self._admitted = await self._front.admit(self._call)
        return events.Decided(self._admitted.tokens_per_message)

    async def _encode(self) -> events.Encoded:
        assert self._admitted is not None
        self._prepared, self._admitted = await self._front.encode(self._admitted, self._call), None
        sampling = self._prepared.sampling
        self._has_logprobs = sampling.has_logprobs
        if sampling.logprobs is not None:
            self._token_bytes += ALTERNATIVE * (1 + sampling.logprobs)
        self._call.usage.prompt_tokens = len(self._prepared.token_ids) // TOKEN_BYTES
        self._call.usage.system_tokens = self._prepared.system_tokens
        return events.Encoded()

    async def _place(self, place: commands.Place) -> events.Placed:
        prepared, call = self._prepared, self._call
        assert prepared is not None
        request = scheduler_pb2.DispatchRequest(
            request_id=prepared.request_id,
            attempt=place.attempt,
            client=prepared.client,
            model=prepared.model,
            digests=prepared.digests,
            revision=prepared.revision,
            prompt_tokens=call.usage.prompt_tokens,
            excluded=place.excluded,
            weight=prepared.weight,
        )
        placement = self._placement = await self._cluster.place(request)
        call.worker, call.matched_tokens = placement.worker, placement.matched_tokens
        call.worker_instance, call.scheduler = placement.instance, placement.scheduler
        call.timings.dispatched = call.timings.dispatched or placement.selected_at
        return events.Placed(placement.instance)

    def _submit(self, submit: commands.Submit) -> None:
        prepared = self._prepared
        assert prepared is not None
        assert self._placement is not None
        generated, deadline = submit.output_tokens, prepared.deadline
        sampling = prepared.sampling.after(generated) if generated else prepared.sampling
        submission = worker_pb2.Submit(
            **prepared.constant_fields,
            attempt=submit.attempt,
            token_ids=prepared.token_ids + submit.generated,
            generated_tokens=generated,
            sampling=sampling_to_proto(sampling),
            charged=submit.charged,
            tokens_per_message=submit.tokens_per_message,
            timeout_seconds=0.0 if deadline is None else max(MIN_TIMEOUT, deadline - self._loop.time()),
        )
        self._attempt = self._placement.link.submit(submission, self._receive)

    def _event(self, message: Event) -> events.Event:
        """Convert a worker's message to an event, and record its arrival in the call's timings."""
        match message:
            case worker_pb2.Tokens() as new:
                self._note_first_token()
                if self._has_logprobs:
                    return events.Tokens(new.token_ids, new.text, new.service, new.logprobs, new.prompt_logprobs)
                return events.Tokens(new.token_ids, new.text, new.service)
            case worker_pb2.Started():
                self._call.timings.scheduled = self._call.timings.scheduled or self._call.unix_time()
                return events.Started(message.cached_tokens, message.service)
            case WorkerLost():
                return events.Lost(self._cluster.was_away())
            case worker_pb2.Ended():
                return self._ended(message, None)
            case LastTokens():
                self._note_first_token()
                return self._ended(message.ended, message.tokens)

    def _note_first_token(self) -> None:
        if not self._call.timings.first_token:
            self._call.timings.first_token = self._call.unix_time()

    def _ended(self, ended: worker_pb2.Ended, tokens: worker_pb2.Tokens | None) -> events.Completed | events.Ended:
        outcome = Outcome(ended.outcome)
        if outcome is not Outcome.UNAVAILABLE:
            self._merge(ended)
        if outcome is not Outcome.COMPLETED:
            return events.Ended(outcome, ended.message, ended.usage.service, ended.field)
        self._call.finish_reason = FinishReason(ended.finish_reason)
        self._call.stop_string = ended.stop_string
        last = OutputChunk(b"", ended.text, ()) if ended.text else None
        if tokens is not None:
            last = OutputChunk(tokens.token_ids, tokens.text + ended.text, tokens.logprobs, tokens.prompt_logprobs)
        return events.Completed(self._call.finish_reason, ended.usage.service, last)

    def _merge(self, ended: worker_pb2.Ended) -> None:
        if self._machine.attempts.number == 1:
            self._call.timings.MergeFrom(ended.timings)
        else:  # an earlier attempt has set the times of the earlier points
            self._call.timings.finished = ended.timings.finished

    def _note_usage(self) -> None:
        machine, usage = self._machine, self._call.usage
        usage.cached_tokens, usage.output_tokens = machine.cached_tokens, machine.output_tokens
        usage.service = machine.service

    def _end(self, error: FairleadError | None) -> None:
        call = self._call
        call.outcome = Outcome.COMPLETED if error is None else error.outcome
        call.message = "" if error is None else reason(error)
        call.attempts = self._machine.attempts.number
        self._note_usage()
        if self._answering is not None:
            self._answering.cancel()
        if self._held:
            self._held_outputs.remove(call.client, self._held)
            self._held = 0
        if error is not None:
            self._front.refuse(error)
            self._wake()
        self._call_log.ended(call)
        call.cleanup.close()
