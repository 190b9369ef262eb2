"""A call's state machine: the gateway's decisions about one call, from its arrival to its one outcome.

The output of a request depends only on prompt, seed and position, and a worker derives text from all generated tokens.
A new attempt that receives the tokens generated so far therefore continues exactly where the lost attempt stopped.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

from fairlead.errors import Cancelled as CallerGone
from fairlead.errors import DeadlineExceeded, FairleadError, Unavailable, error_for
from fairlead.outcomes import Outcome
from fairlead.token_ids import TOKEN_BYTES
from gateway.core import call_events as events
from gateway.core.call_commands import (
    Abort,
    Accepted,
    Command,
    Decide,
    Encode,
    End,
    Finished,
    HangUp,
    Message,
    Place,
    Submit,
    Withdraw,
)
from gateway.core.call_events import OutputChunk
from gateway.core.call_states import (
    DECIDING,
    ENCODING,
    ENDED,
    FINISHING,
    FLUSHING,
    NEW,
    PLACING,
    QUEUED,
    RUNNING,
    TRANSITIONS,
    CallState,
)

MAX_ATTEMPTS = 3  # consecutive attempts without a token


@dataclass(slots=True)
class Attempts:
    """The attempts of one request so far, and the rule for placing it again after it lost its worker.

    `tried` are the instances that further attempts exclude: a restarted worker has a new instance.
    """

    number: int = 0
    tried: list[str] = field(default_factory=list)
    started: bool = False  # whether this attempt has entered a running batch
    charged: bool = False  # whether any attempt has brought a token: then the call has paid for its prompt
    _fruitless: int = 0  # attempts since the last token
    _excused: list[str] = field(default_factory=list)  # instances; each can be excused once

    def begin(self) -> None:
        """Begin a new attempt, before the request is placed."""
        self.number += 1
        self._fruitless += 1
        self.started = False

    def advanced(self) -> None:
        """Record that a token arrived."""
        self._fruitless, self.charged = 0, True

    def excuse(self) -> None:
        """Do not count this attempt, which was lost after a stall of the gateway; at most once for each instance."""
        if self.tried[-1] not in self._excused:
            self._excused.append(self.tried.pop())
            self._fruitless = max(0, self._fruitless - 1)

    @property
    def exhausted(self) -> bool:
        """Whether a request that now loses its worker fails."""
        return self._fruitless >= MAX_ATTEMPTS

    def check_invariants(self) -> None:
        """Raise AssertionError if the counts of attempts contradict each other."""
        assert 0 <= self._fruitless <= min(self.number, MAX_ATTEMPTS), f"{self._fruitless} of {self.number} fruitless"
        counted = self.number - len(self._excused)
        assert len(self.tried) in (counted, counted - 1), f"{self.tried} tried in {counted} attempts that count"
        assert self.charged or self._fruitless == counted, (
            f"{self._fruitless} of {counted} fruitless, and no token came"
        )


# Seconds. The clocks of caller and gateway differ: a cancellation this close to the deadline counts as its expiry.
DEADLINE_SLACK = 0.05


def joined(chunks: Sequence[OutputChunk]) -> OutputChunk:
    """Return consecutive chunks of one output as one chunk."""
    if len(chunks) == 1:
        return chunks[0]
    return OutputChunk(
        b"".join([chunk.token_ids for chunk in chunks]),
        "".join([chunk.text for chunk in chunks]),
        [*chain.from_iterable(chunk.logprobs for chunk in chunks)],
        [*chain.from_iterable(chunk.prompt_logprobs for chunk in chunks)],
    )


class Coalescer:
    """Holds the output that arrives while the caller takes an earlier message, which costs about 50 us for any tokens.

    A message is one chunk as it came from the worker if the caller wants 1 token per message, otherwise everything that
    is held: workers have gathered the tokens already.
    """

    def __init__(self, tokens_per_message: int) -> None:
        self.tokens_per_message = tokens_per_message
        self.held: deque[OutputChunk] = deque()
        self.tokens = 0  # held

    def add(self, chunk: OutputChunk) -> None:
        """Hold the next output."""
        self.held.append(chunk)
        self.tokens += len(chunk.token_ids) // TOKEN_BYTES

    def take(self) -> OutputChunk:
        """Remove and return the next message; something must be held."""
        if self.tokens_per_message == 1:
            chunk = self.held.popleft()
            self.tokens -= len(chunk.token_ids) // TOKEN_BYTES
            return chunk
        chunk = joined(self.held)
        self.held.clear()
        self.tokens = 0
        return chunk


class IllegalEvent(Exception):
    """The event cannot happen in the call's state; the machine has not changed."""


class CallMachine:
    """The state machine of one call, which only `handle` changes; the driver's times never decrease.

    A call whose output is complete ends if its caller takes no message for `reader_seconds`.
    """

    def __init__(self, reader_seconds: float) -> None:
        self.state: CallState = NEW
        self.outcome: Outcome | None = None
        self.attempts = Attempts()
        self.cached_tokens = 0  # prompt tokens that were cached for the attempt that is charged for the prompt
        self.output_tokens = 0
        self.service = 0.0  # charge for all attempts but those that were lost before the first token, in cost units
        self._reader_seconds = reader_seconds
        self._deadline: float | None = None
        self.coalescer = Coalescer(tokens_per_message=1)  # of output that the caller has not begun to take
        self._generated: list[bytes] = []
        self._sent_bytes = 0  # of packed token ids
        self._service_before = 0.0  # charge for earlier attempts, in cost units
        self._is_accepted = False  # whether the message Accepted was sent
        self._writing_since: float | None = None
        self._conclusion: Finished | FairleadError | None = None  # sent after all output

    @property
    def generated(self) -> bytes:
        """The packed output of all attempts so far."""
        return b"".join(self._generated)

    def handle(self, event: events.Event, now: float) -> Sequence[Command]:
        """Handle `event` and return the commands to execute in order; raise IllegalEvent without any change."""
        kind = type(event)
        targets = TRANSITIONS[self.state].get(kind)
        if targets is None:
            raise IllegalEvent(f"a call that is {self.state} cannot be told {event}")
        commands = self._late(event) if self.state is ENDED else self._HANDLERS[kind](self, event, now)
        assert self.state in targets, f"{kind.__name__} led to {self.state}, the table says {targets}"
        return commands

    def next_deadline(self) -> float | None:
        """Return the time at which a Tick is due if no other event comes before; None: never."""
        deadline = None if self.state in (FINISHING, ENDED) else self._deadline
        if self._writing_since is None:
            return deadline
        patience_ends = self._patience_ends()
        if deadline is None or patience_ends is None:
            return patience_ends if deadline is None else deadline
        return min(deadline, patience_ends)

    def _arrived(self, arrived: events.Arrived, now: float) -> Sequence[Command]:
        self.state, self._deadline = DECIDING, arrived.deadline
        return (Decide(),)

    def _decided(self, decided: events.Decided, now: float) -> Sequence[Command]:
        self.state, self.coalescer.tokens_per_message = ENCODING, decided.tokens_per_message
        return (Encode(),)

    def _encoded(self, encoded: events.Encoded, now: float) -> Sequence[Command]:
        return (self._place(),)

    def _placed(self, placed: events.Placed, now: float) -> Sequence[Command]:
        self.state = QUEUED
        self.attempts.tried.append(placed.instance)
        return (Submit(),)

    def _failed(self, failed: events.Failed, now: float) -> Sequence[Command]:
        if self.state in (DECIDING, ENCODING, PLACING):
            return self._conclude(failed.error, now)
        return self._give_up(failed.error)

    def _place(self) -> Place:
        self.state = PLACING
        self.attempts.begin()
        return Place(self.attempts.number, tuple(self.attempts.tried))

    def _started(self, started: events.Started, now: float) -> Sequence[Command]:
        if self.attempts.started:  # the worker has preempted the request and started it again
            return ()
        self.state = RUNNING
        self.attempts.started = True
        self.service = self._service_before + started.service
        if not self.attempts.charged:
            self.cached_tokens = started.cached_tokens
        if self._is_accepted:
            return ()
        self._is_accepted = True
        return (self._send(Accepted(), now),)

    def _output(self, chunk: OutputChunk, now: float) -> Sequence[Command]:
        self.service = self._service_before + chunk.service
        self._count(chunk.token_ids)
        if self._writing_since is None:  # then nothing is held
            return (self._send_chunk(chunk, now),)
        self.coalescer.add(chunk)
        return ()

    def _completed(self, completed: events.Completed, now: float) -> Sequence[Command]:
        self.service = self._service_before + completed.service
        if completed.last is not None:
            self._count(completed.last.token_ids)
            self.coalescer.add(completed.last)
        return self._conclude(Finished(), now)

    def _count(self, token_ids: bytes) -> None:
        self.attempts.advanced()
        self.output_tokens += len(token_ids) // TOKEN_BYTES
        self._generated.append(token_ids)

    def _ended(self, ended: events.Ended, now: float) -> Sequence[Command]:
        if ended.outcome is Outcome.UNAVAILABLE:
            return self._lost(events.Lost(), now)
        self.service = self._service_before + ended.service
        return self._conclude(error_for(ended.outcome, ended.message, field=ended.field), now)

    def _lost(self, lost: events.Lost, now: float) -> Sequence[Command]:
        # A worker sends the last token and the end in one message, so a lost request still has output to generate.
        # Nobody knows how much of its prompt an attempt without a token has computed: the next one pays for all of it.
        self.service = self._service_before = self.service if self.attempts.charged else 0.0
        withdrawals = self._withdrawals()
        if lost.gateway_stalled:
            self.attempts.excuse()
        if self.attempts.exhausted:
            error = Unavailable(f"lost {MAX_ATTEMPTS} workers one after the other")
            return (*withdrawals, *self._conclude(error, now))
        return (*withdrawals, self._place())

    def _withdrawals(self) -> tuple[Withdraw, ...]:
        return () if self.attempts.started else (Withdraw(self.attempts.number),)

    def _send(self, message: Message, now: float) -> Message:
        self._writing_since = now
        return message

    def _send_chunk(self, chunk: OutputChunk, now: float) -> Message:
        self._sent_bytes += len(chunk.token_ids)
        return self._send(chunk, now)

    def _conclude(self, conclusion: Finished | FairleadError, now: float) -> Sequence[Command]:
        """Set the call's conclusion; the caller receives the output that is still held, then the conclusion."""
        self.state, self._conclusion = FLUSHING, conclusion
        return self._flush(now)

    def _flush(self, now: float) -> Sequence[Command]:
        if self._writing_since is not None:
            return ()
        last, conclusion = self.coalescer.take() if self.coalescer.held else None, self._conclusion
        assert conclusion is not None
        if isinstance(conclusion, Finished) and not self.coalescer.held:
            self.state, self.outcome = FINISHING, Outcome.COMPLETED
            self._sent_bytes += len(last.token_ids) if last is not None else 0
            return (self._send(Finished(last), now), End(None))
        if last is not None:
            return (self._send_chunk(last, now),)
        assert not isinstance(conclusion, Finished)
        return (self._end(conclusion),)

    def _end(self, error: FairleadError) -> End:
        self.state, self.outcome, self._conclusion = ENDED, error.outcome, None
        return End(error)

    def _written(self, written: events.Written, now: float) -> Sequence[Command]:
        self._writing_since = None
        if self.state is FLUSHING:
            return self._flush(now)
        if self.state is FINISHING:
            self.state = ENDED
            return ()
        return (self._send_chunk(self.coalescer.take(), now),) if self.coalescer.held else ()

    def _cancelled(self, cancelled: events.CallerCancelled, now: float) -> Sequence[Command]:
        is_late = self._deadline is not None and now >= self._deadline - DEADLINE_SLACK
        return self._abandon(_too_late() if is_late else CallerGone("the caller is gone"))

    def _tick(self, tick: events.Tick, now: float) -> Sequence[Command]:
        patience_ends = self._patience_ends()
        if self._deadline is not None and now >= self._deadline and self.state is not FINISHING:
            return self._give_up(_too_late())
        if patience_ends is not None and now >= patience_ends:
            return self._give_up(CallerGone(f"nothing was read for {self._reader_seconds:g} s"))
        return ()

    def _patience_ends(self) -> float | None:
        """Return the time at which the call ends if its caller takes no message; None: there is no limit."""
        if self._writing_since is None or self.state not in (FLUSHING, FINISHING):
            return None
        return self._writing_since + self._reader_seconds

    def _give_up(self, error: FairleadError) -> Sequence[Command]:
        """End the call with an error to a caller that is still connected."""
        is_writing = self._writing_since is not None
        commands = self._abandon(error)
        return (*commands, HangUp(error)) if is_writing else commands

    def _abandon(self, error: FairleadError) -> Sequence[Command]:
        """End the call now, in any state."""
        if self.state is FINISHING:
            self.state = ENDED
            return ()
        if self.state in (QUEUED, RUNNING):
            return (Abort(self.attempts.number), *self._withdrawals(), self._end(error))
        return (self._end(error),)

    def _late(self, event: events.Event) -> Sequence[Command]:
        return (Withdraw(self.attempts.number),) if isinstance(event, events.Placed) else ()

    _HANDLERS: ClassVar[Mapping[type[events.Event], Callable[[Any, Any, float], Sequence[Command]]]] = {
        events.Arrived: _arrived,
        events.Decided: _decided,
        events.Encoded: _encoded,
        events.Placed: _placed,
        events.Failed: _failed,
        events.Started: _started,
        OutputChunk: _output,
        events.Completed: _completed,
        events.Ended: _ended,
        events.Lost: _lost,
        events.Written: _written,
        events.CallerCancelled: _cancelled,
        events.Tick: _tick,
    }

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""
        self.attempts.check_invariants()
        generated = sum(map(len, self._generated)) // TOKEN_BYTES
        assert generated == self.output_tokens, f"{generated} tokens kept, {self.output_tokens} counted"
        held, sent = self.coalescer.tokens, self._sent_bytes // TOKEN_BYTES
        assert sent + held == generated, f"{sent} sent and {held} held of {generated} tokens"
        is_over = self.state in (FINISHING, ENDED)
        assert (self.outcome is not None) == is_over, f"{self.state} with outcome {self.outcome}"
        assert self._service_before <= self.service, f"{self.service} charged, {self._service_before} before"
        assert self._is_accepted or self._writing_since is None, "a message before the first"
        assert not self.coalescer.held or self._writing_since is not None or is_over, (
            "output is held and nothing written"
        )


def _too_late() -> DeadlineExceeded:
    return DeadlineExceeded("the call's deadline has passed")
