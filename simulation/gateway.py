"""The gateway's driver under virtual time: it executes the commands of the calls' machines."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from fairlead.errors import Unavailable
from fairlead.outcomes import Outcome
from fairlead.token_ids import pack_ids
from gateway.core import call_commands as commands
from gateway.core import call_events as events
from gateway.core.call import CallMachine
from gateway.core.call_events import OutputChunk
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.policies import RouteRequest
from local_worker.core.events import RequestEvents
from local_worker.core.request import Request
from serving.blocks import pack_digests
from simulation.admission import MODEL, SimulatedAdmission
from simulation.call import SimulatedCall
from simulation.clock import VirtualClock
from simulation.prompts import digests_of
from simulation.spec import ClusterSpec
from simulation.worker import SimulatedAttempt, SimulatedWorker, attempt_of


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call that has not ended, with its state outside its machine."""

    call: SimulatedCall
    machine: CallMachine
    attempt: SimulatedAttempt | None = None  # the current attempt at a worker
    tick_at: float = field(default=math.inf)  # time of the earliest planned tick


class SimulatedGateway:
    """The gateway of a simulated cluster; it calls `done` once per call, at the call's end."""

    def __init__(
        self,
        spec: ClusterSpec,
        clock: VirtualClock,
        dispatcher: Dispatcher,
        workers: dict[str, SimulatedWorker],
        admission: SimulatedAdmission,
        done: Callable[[SimulatedCall], None],
    ) -> None:
        self._spec = spec
        self._delay = spec.network_seconds
        self._clock = clock
        self._dispatcher = dispatcher
        self._workers = workers
        self._done = done
        self.admission = admission
        self.streaming = dict.fromkeys(workers, True)  # whether the stream to each worker is open
        self.handled: Callable[[CallMachine], None] = lambda machine: None  # called after each event
        # Tokenizes a call's prompt, and calls the function with whether that worked.
        self.encode: Callable[[SimulatedCall, Callable[[bool], None]], None] = lambda call, ended: ended(True)
        self._open: dict[SimulatedCall, OpenCall] = {}

    def arrived(self, call: SimulatedCall) -> None:
        """Start handling a client's call that arrives now."""
        opened = self._open[call] = OpenCall(call, CallMachine(self._spec.reader_seconds))
        if call.patience is not None:
            self._clock.after(call.patience, partial(self._handle_if_open, call, events.CallerCancelled()))
        self._handle(opened, events.Arrived(call.deadline))

    def worker_reported(self, reported: RequestEvents) -> None:
        """Handle a worker's events; those of older attempts and of other gateways' calls are ignored."""
        for started in reported.started:
            self._handle_for_attempt(attempt_of(started.request), events.Started(started.request.cached))
        for tokens in reported.tokens:
            attempt = attempt_of(tokens.request)
            if attempt.call in self._open:  # most are not where there are several gateways
                self._handle_for_attempt(attempt, OutputChunk(pack_ids(tokens.tokens)))
        for end in reported.ended:
            completed = end.outcome is Outcome.COMPLETED
            self._handle_for_attempt(
                attempt_of(end.request), events.Completed(end.reason) if completed else events.Ended(end.outcome)
            )

    def lost(self, worker: SimulatedWorker) -> None:
        """Place the calls of `worker` again after its stream broke or it stalled."""
        for opened in [opened for opened in self._open.values() if opened.attempt and opened.attempt.worker is worker]:
            assert opened.attempt is not None
            self._clock.after(self._delay, partial(worker.abort, opened.attempt))
            self._handle_for_attempt(opened.attempt, events.Lost())

    def _handle_if_open(self, call: SimulatedCall, event: events.Event) -> None:
        """Handle an event that may come after the call's end."""
        opened = self._open.get(call)
        if opened is not None:
            self._handle(opened, event)

    def _handle_for_attempt(self, attempt: SimulatedAttempt, event: events.Event) -> None:
        opened = self._open.get(attempt.call)
        if opened is None or opened.attempt is not attempt:
            return
        if isinstance(event, events.Completed | events.Ended | events.Lost):
            opened.attempt = None
        self._handle(opened, event)

    def _handle(self, opened: OpenCall, event: events.Event) -> None:
        due_commands = opened.machine.handle(event, self._clock.now)
        self.handled(opened.machine)
        for command in due_commands:
            self._carry_out(opened, command)
        due = opened.machine.next_deadline()
        if due is not None and due < opened.tick_at:
            opened.tick_at = due
            self._clock.at(due, partial(self._tick, opened.call))

    def _tick(self, call: SimulatedCall) -> None:
        opened = self._open.get(call)
        if opened is not None:
            opened.tick_at = math.inf
            self._handle(opened, events.Tick())

    def _carry_out(self, opened: OpenCall, command: commands.Command) -> None:
        match command:
            case commands.Accepted() | OutputChunk() | commands.Finished():
                self._send(opened, command)
            case commands.Decide():
                self.admission.decide(opened.call, partial(self._handle, opened))
            case commands.Encode():
                self.encode(opened.call, partial(self._encoded, opened))
            case commands.Place():
                opened.call.attempts = command.attempt
                self._clock.after(self._delay, partial(self._place, opened, command))
            case commands.Submit():
                self._submit(opened)
            case commands.Abort():
                self._abort(opened)
            case commands.Withdraw():
                self._dispatcher.withdrawn(str(opened.call.number), command.attempt)
            case commands.End():
                self._end(opened, Outcome.COMPLETED if command.error is None else command.error.outcome)
            case commands.HangUp():
                pass  # a client that does not read notices no difference

    def _encoded(self, opened: OpenCall, is_encoded: bool) -> None:
        failed = events.Failed(Unavailable("no worker tokenized the prompt"))
        self._handle(opened, events.Encoded() if is_encoded else failed)

    def load(self, worker: SimulatedWorker) -> int:
        """Return the number of calls with an attempt at `worker`."""
        return sum(opened.attempt is not None and opened.attempt.worker is worker for opened in self._open.values())

    def _place(self, opened: OpenCall, place: commands.Place) -> None:
        call = opened.call
        if call.outcome is not None:
            return
        if not call.digests:
            call.digests = digests_of(call.prompt, next(iter(self._workers.values())).spec.block_tokens)
        request = RouteRequest(
            request_id=str(call.number),
            attempt=place.attempt,
            client=call.client,
            model=MODEL,
            digests=pack_digests(call.digests),
            prompt_tokens=call.prompt_tokens + opened.machine.output_tokens,
            weight=call.weight,
            background=call.background,
            excluded=place.excluded,
        )
        assignment = self._dispatcher.dispatch(request, self._clock.now)
        if assignment is None:
            self._handle(opened, events.Failed(Unavailable(f"no live worker serves model {MODEL!r}")))
            return
        identity = assignment.member.identity
        call.worker = identity.worker
        self._handle(opened, events.Placed(identity.instance))

    def _submit(self, opened: OpenCall) -> None:
        machine = opened.machine
        attempt = opened.attempt = SimulatedAttempt(
            opened.call,
            machine.attempts.number,
            self._workers[opened.call.worker],
            in_interaction=self.admission.protected(opened.call),
            generated=machine.output_tokens,
            charged=machine.attempts.charged,
            tokens_per_message=self._spec.tokens_per_message,
        )
        self._clock.after(2 * self._delay, partial(self._reach, attempt))

    def _reach(self, attempt: SimulatedAttempt) -> None:
        if self.streaming[attempt.worker.name]:
            attempt.worker.submit(attempt)
        else:
            self._handle_for_attempt(attempt, events.Lost())

    def _abort(self, opened: OpenCall) -> None:
        attempt, opened.attempt = opened.attempt, None
        assert attempt is not None
        self._clock.after(2 * self._delay, partial(attempt.worker.abort, attempt))  # not before it is submitted

    def _send(self, opened: OpenCall, message: commands.Message) -> None:
        if isinstance(message, commands.Accepted):
            opened.call.cached_tokens = opened.machine.cached_tokens
        if isinstance(message, commands.Finished) and message.last is not None:
            self._receive(opened.call, message.last)
        if opened.call.read_seconds:
            self._clock.after(opened.call.read_seconds, partial(self._read, opened, message))
        else:
            self._read(opened, message)

    def _read(self, opened: OpenCall, message: commands.Message) -> None:
        """Deliver a message to the client."""
        if isinstance(message, OutputChunk) and opened.call.outcome is None:
            self._receive(opened.call, message)
        self._handle(opened, events.Written())

    def _receive(self, call: SimulatedCall, chunk: OutputChunk) -> None:
        expected = call.answer[call.received : call.received + chunk.tokens]
        assert chunk.token_ids == pack_ids(expected), f"call {call.number}: wrong tokens at {call.received}"
        if call.first_token_at is None:
            call.first_token_at = self._clock.now
        call.received += chunk.tokens

    def _end(self, opened: OpenCall, outcome: Outcome) -> None:
        call = opened.call
        assert call.outcome is None, f"call {call.number} ends twice: {call.outcome}, {outcome}"
        if outcome is Outcome.COMPLETED:
            assert call.received == call.output_tokens, f"call {call.number}: {call.received} of {call.output_tokens}"
        call.outcome, call.ended_at = outcome, self._clock.now
        del self._open[call]
        if opened.machine.attempts.number:
            self.admission.ended(call)
        else:
            self.admission.withdrawn(call)
        self._done(call)


def placed_request(request: Request) -> RouteRequest:
    """Return the request as a worker reports it to the scheduler."""
    return RouteRequest(
        request_id=request.id,
        attempt=request.attempt,
        client=request.client,
        model=MODEL,
        digests=b"",
        prompt_tokens=attempt_of(request).call.prompt_tokens,
        weight=request.weight,
        background=request.background,
    )
