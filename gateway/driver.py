"""The driver of a call: it executes the commands of the call's state machine and returns the resulting events to it."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

from fairlead.errors import ClientLimit, DeadlineExceeded, FairleadError, Internal, QueueFull
from fairlead.outcomes import Outcome
from fairlead.token_ids import TOKEN_BYTES
from fairlead.v1 import common_pb2, inference_pb2, scheduler_pb2
from gateway.admission import Admission
from gateway.call import Call
from gateway.call_log import CallLog, reason
from gateway.core import call_commands as commands
from gateway.core import call_events as events
from gateway.core.call import CallMachine
from gateway.core.call_events import OutputChunk
from gateway.core.call_states import ENDED
from gateway.core.client_limits import HeldBytesLimiter
from gateway.core.start_predictor import CallWaits
from gateway.tenants import Credentials
from gateway.upstream.attempt import Attempt
from gateway.upstream.cluster import Cluster
from gateway.upstream.workers import WorkerLink
from serving.wire import sampling_to_proto

log = logging.getLogger(__name__)
MIN_TIMEOUT = 0.001  # seconds; 0 on the wire means no timeout
Question = commands.Decide | commands.Encode | commands.Place
WRITTEN = events.Written()
# Bytes of what is held: of a token with its text, and of each log-probability that is reported with it.
TOKEN = 64
ALTERNATIVE = 72


class CallerPort(Protocol):
    """The caller of one call; `refuse` and `hang_up` are called at most once, at the end of the call."""

    @property
    def credentials(self) -> Credentials:
        """What the caller has shown before its request."""

    def receive(self) -> Awaitable[inference_pb2.GenerateRequest]:
        """Read and parse the request; raise InvalidRequest."""

    def write(self, message: commands.Message) -> bool:
        """Write `message` now and return True, or return False: then `messages` yields it. It yields every Finished."""

    def refuse(self, error: FairleadError) -> None:
        """Set the error with which the call ends once `messages` is exhausted."""

    def hang_up(self, error: FairleadError) -> None:
        """End the call with `error` although the caller has not taken the last message."""


class CallDrivers:
    """Makes the driver of each call, and keeps it until the call has ended."""

    def __init__(
        self,
        admission: Admission,
        cluster: Cluster,
        call_log: CallLog,
        held_outputs: HeldBytesLimiter,
        reader_seconds: float,
    ) -> None:
        self.admission = admission
        self.cluster = cluster
        self.call_log = call_log
        self.held_outputs = held_outputs
        self.reader_seconds = reader_seconds
        self.waits = CallWaits()
        self.background_waits = CallWaits()
        self._drivers: dict[str, CallDriver] = {}  # by request id

    def drive(self, caller: CallerPort, call: Call) -> "CallDriver":
        """Return the driver of a new call, which must begin at once."""
        driver = self._drivers[call.request_id] = CallDriver(self, caller, call)
        call.cleanup.callback(self._drivers.pop, call.request_id)
        return driver

    def end(self, error: FairleadError) -> None:
        """End all calls with `error`, of which each caller is told."""
        for driver in list(self._drivers.values()):
            driver.fail(error)


class CallDriver:
    """The driver of one call; the call's machine makes all decisions."""

    def __init__(self, shared: CallDrivers, caller: CallerPort, call: Call) -> None:
        self._caller = caller
        self._admission = shared.admission
        self._cluster = shared.cluster
        self._call_log = shared.call_log
        self._held_outputs = shared.held_outputs
        self._waits, self._background_waits = shared.waits, shared.background_waits
        self._submitted = 0.0  # loop time of the first submission
        self._call = call
        self._machine = CallMachine(shared.reader_seconds)
        self._loop = asyncio.get_running_loop()
        self._question: Question | None = None  # the next question; its answer has not begun
        self._answering: asyncio.Task[None] | None = None
        self._held = 0  # bytes of output, at most, that the machine held when they were last counted
        self._token_bytes = TOKEN
        self._link: WorkerLink | None = None  # to the worker that was chosen last
        self._attempt: Attempt | None = None
        self._message: commands.Message | None = None  # the next message that `messages` yields
        self._has_written = False  # whether the caller has taken a message during the current step
        self._waiting: asyncio.Future[None] | None = None  # for a message, or for the call's end
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf

    async def messages(self) -> AsyncIterator[commands.Message]:
        """Yield the messages that could not be written at once, until the call ends.

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
        """Cancel the call, unless it has ended, and its timer; to be called at the end of every call."""
        if self._machine.state is not ENDED:
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

    def _receive(self, event: events.Event) -> None:
        """Handle an event from the worker at once."""
        try:
            self._note(event)
            self._step(event)
            self._count_held()
        except ClientLimit as error:
            self._step(events.Failed(error))
        except Exception:
            self._step(self._defect())

    def _count_held(self) -> None:
        """Raise ClientLimit where the caller does not read, and its client's outputs leave too little memory."""
        growth = self._machine.coalescer.tokens * self._token_bytes - self._held
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
            case commands.Accepted() | OutputChunk() | commands.Finished():
                if isinstance(command, commands.Accepted):
                    self._note_usage()
                self._has_written = self._caller.write(command)
                if not self._has_written:
                    self._message = command
                    self._wake()
            case commands.Decide() | commands.Encode() | commands.Place():
                self._question = command
                if self._answering is None:
                    self._answering = asyncio.create_task(self._answer_all())
            case commands.Submit():
                self._submit()
            case commands.Abort():
                if self._attempt is not None:
                    self._attempt.abort()
            case commands.Withdraw():
                self._cluster.withdraw(self._call.request_id, command.attempt)
            case commands.End():
                self._end(command.error)
            case commands.HangUp():
                self._caller.hang_up(command.error)

    async def _answer_all(self) -> None:
        """Answer all questions in one task, because most answers lead to the next question."""
        call = self._call
        while self._question is not None:
            question, self._question = self._question, None
            event: events.Event
            try:
                match question:
                    case commands.Decide():
                        await self._admission.admit(call, self._caller.receive, self._caller.credentials)
                        event = events.Decided(call.tokens_per_message)
                    case commands.Encode():
                        await self._admission.prepare(call)
                        if call.sampling is not None and call.sampling.logprobs is not None:
                            self._token_bytes += ALTERNATIVE * (1 + call.sampling.logprobs)
                        event = events.Encoded()
                    case commands.Place():
                        event = await self._place(question)
            except FairleadError as error:
                event = events.Failed(error.with_traceback(None))  # its frames would keep the request in memory
            except Exception:
                event = self._defect()
            if call.background:  # which is known once the request has arrived
                self._waits = self._background_waits
            self._tell(event)
        self._answering = None

    async def _place(self, question: commands.Place) -> events.Placed:
        call, dispatch = self._call, self._call.dispatch
        dispatch.attempt, dispatch.excluded[:] = question.attempt, question.excluded
        if call.worker_instance:
            self._waits.left(call.client, call.worker_instance, call.request_id)
        placed = await self._cluster.place(dispatch)
        if call.deadline is not None:
            self._check_deadline(placed, question.attempt, call.deadline)
        self._link = self._cluster.link(placed)
        call.worker, call.matched_tokens = placed.worker, placed.matched_tokens
        call.worker_instance, call.scheduler = placed.instance, placed.scheduler
        call.timings.dispatched = call.timings.dispatched or placed.selected_at
        return events.Placed(placed.instance)

    def _check_deadline(self, placed: scheduler_pb2.DispatchReply, attempt: int, deadline: float) -> None:
        """Raise DeadlineExceeded if the call will surely not start in time, and return its placement."""
        now, client = self._loop.time(), self._call.client
        if self._waits.is_hopeless(client, placed.instance, deadline - now, now):
            self._cluster.withdraw(self._call.request_id, attempt)
            left = max(0.0, deadline - now)
            raise DeadlineExceeded(
                f"the call would wait longer than until its deadline in {left:.3g} s; it was not queued"
            )

    def _submit(self) -> None:
        call, submit, machine = self._call, self._call.submit, self._machine
        assert self._link is not None
        assert call.sampling is not None
        submit.attempt, submit.charged = machine.attempts.number, machine.attempts.charged
        if machine.output_tokens:
            prompt = submit.token_ids[: call.usage.prompt_tokens * TOKEN_BYTES]
            submit.token_ids, submit.generated_tokens = prompt + machine.generated, machine.output_tokens
            submit.sampling.CopyFrom(sampling_to_proto(call.sampling.after(machine.output_tokens)))
        if call.deadline is not None:
            submit.timeout_seconds = max(MIN_TIMEOUT, call.deadline - self._loop.time())
        predicted = self._waits.waits(call.client, call.worker_instance, call.request_id, self._loop.time())
        if call.predicted_wait is None:
            call.predicted_wait, self._submitted = predicted, self._loop.time()
        self._attempt = self._link.submit(submit, self._receive)

    def _note(self, event: events.Event) -> None:
        """Record in the call what the machine does not need of a worker's event."""
        call = self._call
        match event:
            case OutputChunk():
                self._note_first_token()
            case events.Started():
                now = self._loop.time()
                self._waits.started(call.client, call.worker_instance, call.request_id, now)
                if call.waited is None and self._machine.attempts.number == 1:
                    call.waited = now - self._submitted
                call.timings.scheduled = call.timings.scheduled or call.unix_time()
            case events.Completed():
                if event.last is not None and event.last.token_ids:
                    self._note_first_token()
                call.finish_reason, call.stop_string = event.finish_reason, event.stop_string
                self._merge(event.timings)
            case events.Ended() if event.outcome is not Outcome.UNAVAILABLE:
                self._merge(event.timings)

    def _note_first_token(self) -> None:
        if not self._call.timings.first_token:
            self._call.timings.first_token = self._call.unix_time()

    def _merge(self, timings: object) -> None:
        if not isinstance(timings, common_pb2.Timings):
            return
        if self._machine.attempts.number == 1:
            self._call.timings.MergeFrom(timings)
        else:  # an earlier attempt has set the times of the earlier points
            self._call.timings.finished = timings.finished

    def _note_usage(self) -> None:
        machine, usage = self._machine, self._call.usage
        usage.cached_tokens, usage.output_tokens = machine.cached_tokens, machine.output_tokens
        usage.service = machine.service

    def _end(self, error: FairleadError | None) -> None:
        call = self._call
        call.outcome = Outcome.COMPLETED if error is None else error.outcome
        call.message = "" if error is None else reason(error)
        call.attempts = self._machine.attempts.number
        self._waits.left(call.client, call.worker_instance, call.request_id)
        if isinstance(error, ClientLimit | QueueFull):
            error.retry_after = self._waits.retry_after(call.client, error.retry_after, self._loop.time())
        self._note_usage()
        if self._answering is not None:
            self._answering.cancel()
        if self._held:
            self._held_outputs.remove(call.client, self._held)
            self._held = 0
        if error is not None:
            self._caller.refuse(error)
            self._wake()
        self._call_log.ended(call)
        call.cleanup.close()
