"""A call's state machine: random histories against what must hold of every call."""

import math
import time
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlead.errors import Cancelled as CallerGone
from fairlead.errors import DeadlineExceeded, FairleadError, Internal, QueueFull, ThrottledUser, Unavailable
from fairlead.outcomes import FinishReason, Outcome
from fairlead.token_ids import pack_ids, unpack_ids
from gateway.call import new_call
from gateway.core.call import DEADLINE_SLACK, MAX_ATTEMPTS, CallMachine, IllegalEvent
from gateway.core.call_commands import (
    Abort,
    Accepted,
    Command,
    Decide,
    Encode,
    End,
    Finished,
    HangUp,
    Place,
    Submit,
    Withdraw,
)
from gateway.core.call_events import (
    Arrived,
    CallerCancelled,
    Completed,
    Decided,
    Encoded,
    Ended,
    Event,
    Failed,
    Lost,
    OutputChunk,
    Placed,
    Started,
    Tick,
    Written,
)
from gateway.core.call_states import EVENTS, TRANSITIONS, CallState

READER_SECONDS = 5.0
EXAMPLES: dict[type[Event], Event] = {
    Placed: Placed("w"),
    Failed: Failed(Internal("x")),
    OutputChunk: OutputChunk(pack_ids([1])),
    Ended: Ended(Outcome.INTERNAL),
}


class Attempt:
    """What a naive observer writes down of one attempt."""

    def __init__(self) -> None:
        self.instance = ""
        self.service = 0.0
        self.excused = False  # lost for the gateway's own absence
        self.fates: list[str] = []  # started, withdrawn, ended


class CallHistories(RuleBasedStateMachine):
    """Plays caller, admission, scheduler and workers; knows nothing of the machine but what it commands."""

    @initialize(
        deadline=st.none() | st.floats(0.0, 100.0),
        tokens=st.integers(1, 4),
        service=st.sampled_from([0.0, 2.5, 7.0]),
        undisturbed=st.integers(0, 25),
        steps=st.sampled_from([0, 1, 2, 3, 4, 4, 4, 4]),
    )
    def begins(self, deadline: float | None, tokens: int, service: float, undisturbed: int, steps: int) -> None:
        self.undisturbed = undisturbed  # events before something may break the call off
        self.machine = CallMachine(READER_SECONDS)
        self.now = 0.0
        self.deadline, self.tokens_per_message, self.prompt_service = deadline, tokens, service
        self.asked: Command | None = None  # Decide, Encode or Place without an answer
        self.attempts: list[Attempt] = []
        self.cached = 0
        self.fruitless = 0  # attempts that count, since the last token
        self.at_worker = False  # the last attempt is there, for all that the gateway knows
        self.received: list[int] = []
        self.sent: list[int] = []
        self.text = self.sent_text = ""
        self.messages: list[Accepted | OutputChunk | Finished] = []
        self.writing_since: float | None = None
        self.end: End | None = None
        self.concluded: Outcome | None = None  # what the worker, or the lack of one, makes of the call
        self.gone = self.failed = False
        self.tell(Arrived(deadline))
        for _ in range(min(steps, 3)):  # few random histories get as far as a worker by themselves
            self.is_answered("a")
        if steps > 3:
            self.starts(0)

    # The driver's part.

    def tell(self, event: Event) -> None:
        if isinstance(event, OutputChunk):
            self.received += unpack_ids(event.token_ids)
            self.text += event.text
        if isinstance(event, Completed) and event.last is not None:
            self.received += unpack_ids(event.last.token_ids)
            self.text += event.last.text
        had_ended = self.end is not None
        commands = self.machine.handle(event, self.now)
        for command in commands:
            self.carry_out(command)
        hangs_up = all(isinstance(command, HangUp) for command in commands)  # on a caller that leaves the last message
        assert not had_ended or hangs_up, "an ended call does nothing more"
        self.machine.check_invariants()
        self.undisturbed -= not isinstance(event, Tick)

    def carry_out(self, command: Command) -> None:
        match command:
            case Decide() | Encode():
                self.asked = command
            case Place():
                self.asked = command
                self.attempts.append(Attempt())
                assert command.attempt == len(self.attempts)
                counted = [attempt for attempt in self.attempts[:-1] if not attempt.excused]
                assert list(command.excluded) == [attempt.instance for attempt in counted]
                assert self.fruitless < MAX_ATTEMPTS, "placed again too often"
                self.fruitless += 1
            case Submit():
                self.at_worker = True
                assert self.machine.attempts.number == len(self.attempts)
                assert unpack_ids(self.machine.generated) == self.received
                assert self.machine.output_tokens == len(self.received)
                assert self.machine.attempts.charged == bool(self.received)
            case Abort():
                assert self.at_worker
                self.at_worker = False
            case Withdraw():
                self.attempts[command.attempt - 1].fates.append("withdrawn")
            case Accepted() | OutputChunk() | Finished():
                self.send(command)
            case End():
                assert self.end is None, "a call ends once"
                self.end, self.asked = command, None
            case HangUp():
                assert self.writing_since is not None, "nobody waits for the caller"
                self.writing_since = None

    def send(self, message: Accepted | OutputChunk | Finished) -> None:
        assert self.writing_since is None, "one message at a time"
        assert isinstance(message, Accepted) == (not self.messages), "accepted once, and first"
        if isinstance(message, OutputChunk):
            assert self.end is None
            if self.tokens_per_message == 1:
                assert message.tokens <= 1, "each token for itself"
            else:
                assert len(self.sent) + message.tokens == len(self.received), "all that is held"
            self.sent += unpack_ids(message.token_ids)
            self.sent_text += message.text
        if isinstance(message, Finished):
            last = message.last
            if last is not None:
                assert self.tokens_per_message > 1 or last.tokens <= 1, "each token for itself"
                self.sent += unpack_ids(last.token_ids)
                self.sent_text += last.text
            assert (self.sent, self.sent_text) == (self.received, self.text), "the end comes with all that is left"
        self.messages.append(message)
        self.writing_since = self.now

    @property
    def current(self) -> Attempt:
        return self.attempts[-1]

    @property
    def running(self) -> bool:
        return self.at_worker and "started" in self.current.fates

    # What may happen.

    @precondition(lambda self: self.asked is not None)
    @rule(instance=st.sampled_from("abc"))
    def is_answered(self, instance: str) -> None:
        asked, self.asked = self.asked, None
        match asked:
            case Decide():
                self.tell(Decided(self.tokens_per_message))
            case Encode():
                self.tell(Encoded())
            case Place():
                self.current.instance = instance
                self.tell(Placed(self.current.instance))

    @precondition(lambda self: self.undisturbed <= 0 and self.asked is not None)
    @rule(error=st.sampled_from([ThrottledUser("over", 1.0), Unavailable("none"), Internal("bug")]))
    def is_refused(self, error: FairleadError) -> None:
        if isinstance(self.asked, Place):
            self.current.fates.append("unplaced")
        self.asked, self.concluded = None, error.outcome
        self.tell(Failed(error))

    @precondition(lambda self: self.at_worker)
    @rule(cached=st.integers(0, 9))
    def starts(self, cached: int) -> None:
        if not self.running:
            self.current.fates.append("started")
            self.current.service = self.prompt_service
            self.cached = self.cached if self.received else cached
        self.tell(Started(cached, self.prompt_service))

    @precondition(lambda self: self.running)
    @rule(count=st.integers(1, 6))
    def generates(self, count: int) -> None:
        if self.tokens_per_message == 1:
            count = 1
        ids = range(len(self.received), len(self.received) + count)
        self.fruitless = 0
        self.current.service += 2.0 * count
        self.tell(OutputChunk(pack_ids(ids), "x" * count, service=self.current.service))

    @precondition(lambda self: self.running)
    @rule(count=st.integers(0, 4), text=st.sampled_from(["", "rest"]), last_service=st.sampled_from([0.0, 1.5]))
    def completes(self, count: int, text: str, last_service: float) -> None:
        """The last tokens, if any, come with the end."""
        self.at_worker, self.concluded = False, Outcome.COMPLETED
        self.current.service += last_service
        ids = pack_ids(range(len(self.received), len(self.received) + min(count, self.tokens_per_message)))
        last = OutputChunk(ids, "x" * count + text, ()) if count or text else None
        self.tell(Completed(FinishReason.STOP, self.current.service, last))

    @precondition(lambda self: self.undisturbed <= 0 and self.at_worker)
    @rule(
        outcome=st.sampled_from([Outcome.INTERNAL, Outcome.REJECTED_QUEUE_FULL, Outcome.DEADLINE_EXCEEDED]),
        last_service=st.sampled_from([0.0, 1.5]),
    )
    def is_ended_by_its_worker(self, outcome: Outcome, last_service: float) -> None:
        self.at_worker, self.concluded = False, outcome
        self.current.service += last_service
        if not self.running and "started" not in self.current.fates:
            self.current.fates.append("ended")
        self.tell(Ended(outcome, "because", self.current.service))

    @precondition(lambda self: self.at_worker)
    @rule(how=st.sampled_from(["given back", "lost", "lost while away"]))
    def is_lost(self, how: str) -> None:
        self.at_worker = False
        excused = {attempt.instance for attempt in self.attempts if attempt.excused}
        if how == "lost while away" and self.current.instance not in excused:
            self.current.excused = True
            self.fruitless = max(0, self.fruitless - 1)
        if self.fruitless == MAX_ATTEMPTS:
            self.concluded = Outcome.UNAVAILABLE
        if not self.received:
            self.current.service = 0.0
        given_back = Ended(Outcome.UNAVAILABLE, "drains", self.current.service)
        self.tell(given_back if how == "given back" else Lost(gateway_stalled=how == "lost while away"))

    @precondition(lambda self: self.writing_since is not None and not self.gone)
    @rule()
    def reads(self) -> None:
        self.writing_since = None
        is_last = isinstance(self.messages[-1], Finished)
        assert not is_last or self.end == End(None), "its outcome is known when the caller reads the last message"
        self.tell(Written())

    @precondition(lambda self: self.undisturbed <= 0 and self.asked is None and not self.failed)
    @rule()
    def the_gateway_fails(self) -> None:
        self.failed = True
        if self.end is None:
            self.concluded = Outcome.INTERNAL
        self.tell(Failed(Internal("bug")))

    @precondition(lambda self: self.undisturbed <= 0 and not self.gone)
    @rule()
    def goes_away(self) -> None:
        self.gone = True
        ended = self.end
        self.tell(CallerCancelled())
        if ended is None:
            late = self.deadline is not None and self.now >= self.deadline - DEADLINE_SLACK
            assert self.machine.outcome is (Outcome.DEADLINE_EXCEEDED if late else Outcome.CANCELLED)

    @precondition(lambda self: self.end is None or self.writing_since is not None)
    @rule(seconds=st.floats(0.0, 6.0))
    def time_passes(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.machine.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            waited = math.inf if self.writing_since is None else self.now - self.writing_since
            stalls = READER_SECONDS <= waited < math.inf and (self.concluded or self.end) is not None
            self.tell(Tick())
            assert not stalls or self.machine.state is CallState.ENDED
            assert self.machine.next_deadline() != due, "a tick does what is due"
        self.now = until
        self.tell(Tick())

    @rule(event=st.sampled_from(EVENTS))
    def is_told_what_cannot_be(self, event: type[Event]) -> None:
        state = self.machine.state
        if event in TRANSITIONS[state]:
            return
        before = repr(vars(self.machine)), repr(self.machine.attempts)
        with pytest.raises(IllegalEvent, match=str(state)):
            self.machine.handle(EXAMPLES.get(event) or event(), self.now)  # type: ignore[call-arg]
        assert (repr(vars(self.machine)), repr(self.machine.attempts)) == before

    # What must hold.

    @invariant()
    def holds(self) -> None:
        assert self.sent == self.received[: len(self.sent)], "no token twice, none left out"
        assert self.machine.output_tokens == len(self.received)
        assert self.machine.service == sum(attempt.service for attempt in self.attempts), "charged once"
        assert self.machine.cached_tokens == self.cached, "those of the attempt that pays for the prompt"
        assert (self.machine.outcome is None) == (self.end is None)
        if self.writing_since is None and self.end is None:
            assert self.sent == self.received, "nothing is held from a caller that reads"

    @invariant()
    def every_placement_has_one_fate(self) -> None:
        for attempt in self.attempts[:-1]:
            assert len(attempt.fates) == 1, f"{attempt.fates}"
        if self.attempts:
            open_still = self.at_worker or isinstance(self.asked, Place)
            cancelled = self.end is not None and not self.current.instance
            assert len(self.current.fates) == 1 or open_still or cancelled, f"{self.current.fates}"

    @invariant()
    def ends_as_it_must(self) -> None:
        if self.end is None:
            patient = self.writing_since is not None
            assert self.concluded is None or patient, "nothing is left to wait for"
            return
        assert not self.at_worker, "its worker is free"
        outcome = Outcome.COMPLETED if self.end.error is None else self.end.error.outcome
        assert outcome is self.machine.outcome
        assert outcome in (self.concluded, Outcome.CANCELLED, Outcome.DEADLINE_EXCEEDED)


TestCallHistories = CallHistories.TestCase


def running(reader_seconds: float = READER_SECONDS, tokens_per_message: int = 4) -> CallMachine:
    """A call whose caller has read that it is accepted."""
    machine = CallMachine(reader_seconds)
    for event in (
        Arrived(60.0),
        Decided(tokens_per_message),
        Encoded(),
        Placed("a1"),
        Started(),
        Written(),
    ):
        machine.handle(event, 0.0)
    return machine


def chunks(commands: Sequence[Command]) -> list[int]:
    """How many tokens each message has."""
    return [c.tokens for c in commands if isinstance(c, OutputChunk)]


def token(number: int) -> OutputChunk:
    return OutputChunk(pack_ids([number]), "x")


def test_one_call_from_its_arrival_to_its_end() -> None:
    machine = CallMachine(READER_SECONDS)
    assert machine.handle(Arrived(), 0.0) == (Decide(),)
    assert machine.handle(Decided(), 0.1) == (Encode(),)
    assert machine.handle(Encoded(), 0.2) == (Place(1, ()),)
    assert machine.handle(Placed("a1"), 0.3) == (Submit(),)
    assert machine.handle(Started(3, 5.0), 0.4) == (Accepted(),)
    assert machine.handle(OutputChunk(pack_ids([7]), "x", service=7.0), 0.5) == ()
    assert machine.handle(Written(), 0.6) == (OutputChunk(pack_ids([7]), "x", service=7.0),)
    last = OutputChunk(pack_ids([8]), "y", ())
    assert machine.handle(Completed(FinishReason.LENGTH, 7.0, last), 0.7) == ()
    assert machine.handle(Written(), 0.8) == (Finished(last), End(None))
    assert machine.handle(Written(), 0.9) == ()
    assert (machine.state, machine.outcome, machine.service) == (CallState.ENDED, Outcome.COMPLETED, 7.0)
    assert machine.next_deadline() is None


def test_output_that_comes_while_the_caller_is_not_reading_goes_in_one_message() -> None:
    machine = running()
    assert chunks(machine.handle(token(0), 1.0)) == [1]
    for number in range(1, 20):
        assert machine.handle(token(number), 1.1) == ()
    assert machine.next_deadline() == 60.0, "nothing is due before the caller reads"
    assert chunks(machine.handle(Written(), 1.2)) == [19]


def test_each_token_is_a_message_if_the_caller_asks_for_that() -> None:
    machine = running(tokens_per_message=1)
    for number in range(3):
        machine.handle(token(number), 1.0)
    assert [chunks(machine.handle(Written(), 1.1)) for _ in range(3)] == [[1], [1], []]


@pytest.mark.parametrize("end", [Completed(), Ended(Outcome.INTERNAL, "broken")], ids=["completed", "failed"])
def test_a_caller_that_does_not_read_is_given_up_only_once_nothing_more_comes(end: Event) -> None:
    machine = running()
    machine.handle(token(0), 1.0)
    assert machine.handle(Tick(), 1.0 + 2 * READER_SECONDS) == (), "its output may wait"
    assert machine.handle(end, 20.0) == ()
    assert machine.next_deadline() == 1.0 + READER_SECONDS
    given_up, hung_up = machine.handle(Tick(), 20.0)
    assert isinstance(given_up, End)
    assert isinstance(given_up.error, CallerGone)
    assert hung_up == HangUp(given_up.error)
    assert "nothing was read for 5 s" in given_up.error.message


def test_a_caller_that_leaves_the_last_message_unread_is_given_up_and_stays_served() -> None:
    machine = running()
    machine.handle(Completed(), 1.0)
    assert machine.next_deadline() == 1.0 + READER_SECONDS, "its deadline is met"
    [hung_up] = machine.handle(Tick(), 1.0 + READER_SECONDS)
    assert isinstance(hung_up, HangUp)
    assert (machine.state, machine.outcome) == (CallState.ENDED, Outcome.COMPLETED)


@pytest.mark.parametrize("is_writing", [False, True])
def test_the_deadline_frees_the_worker_and_a_caller_that_is_stuck(is_writing: bool) -> None:
    machine = running()
    if is_writing:
        machine.handle(token(0), 1.0)
    abort, end, *hung_up = machine.handle(Tick(), 60.0)
    assert abort == Abort(1)
    assert isinstance(end, End)
    assert isinstance(end.error, DeadlineExceeded)
    assert hung_up == ([HangUp(end.error)] if is_writing else [])


@pytest.mark.parametrize(
    ("at", "outcome"), [(60.0 - DEADLINE_SLACK, Outcome.DEADLINE_EXCEEDED), (59.9, Outcome.CANCELLED)]
)
def test_a_cancellation_shortly_before_the_deadline_counts_as_its_expiry(at: float, outcome: Outcome) -> None:
    machine = running()
    machine.handle(CallerCancelled(), at)
    assert machine.outcome is outcome


def test_output_that_is_held_is_sent_before_an_error() -> None:
    machine = running()
    machine.handle(token(0), 1.0)
    machine.handle(token(1), 1.0)
    assert machine.handle(Ended(Outcome.INTERNAL, "broken"), 1.01) == ()
    assert chunks(machine.handle(Written(), 1.02)) == [1]
    [end] = machine.handle(Written(), 1.03)
    assert isinstance(end, End)
    assert isinstance(end.error, Internal)


def test_a_call_whose_caller_leaves_before_it_arrives_ends() -> None:
    machine = CallMachine(READER_SECONDS)
    assert machine.next_deadline() is None
    assert machine.handle(Tick(), 1.0) == ()
    [end] = machine.handle(CallerCancelled(), 2.0)
    assert isinstance(end, End)
    assert isinstance(end.error, CallerGone)


def test_a_placement_that_comes_too_late_is_given_back() -> None:
    machine = CallMachine(READER_SECONDS)
    for event in (Arrived(), Decided(), Encoded()):
        machine.handle(event, 0.0)
    [end] = machine.handle(CallerCancelled(), 0.1)
    assert isinstance(end, End)
    assert machine.handle(Placed("a1"), 0.2) == (Withdraw(1),)


def test_a_token_gives_a_call_all_of_its_attempts_again() -> None:
    machine = running()
    machine.handle(token(0), 1.0)
    machine.handle(Written(), 1.0)
    for number in range(2, 2 + MAX_ATTEMPTS):
        *_, place = machine.handle(Lost(), 2.0)
        assert isinstance(place, Place)
        assert place.attempt == number
        machine.handle(Placed(f"a{number}"), 2.0)
    *_, end = machine.handle(Lost(), 2.0)
    assert isinstance(end, End)
    assert isinstance(end.error, Unavailable)


def test_a_refusal_of_a_worker_is_the_calls() -> None:
    machine = CallMachine(READER_SECONDS)
    for event in (Arrived(), Decided(), Encoded(), Placed("a1")):
        machine.handle(event, 0.0)
    [end] = machine.handle(Ended(Outcome.REJECTED_QUEUE_FULL, "full"), 0.1)
    assert isinstance(end, End)
    assert isinstance(end.error, QueueFull)


def test_text_that_the_worker_held_back_until_the_end_comes_with_it() -> None:
    machine = running()
    machine.handle(token(0), 1.0)
    rest = OutputChunk(b"", "rest", ())
    machine.handle(Completed(last=rest), 1.1)
    assert machine.handle(Written(), 1.2) == (Finished(rest), End(None))


@pytest.mark.parametrize("end", [Completed(service=9.0), Ended(Outcome.INTERNAL, "broken", 9.0)])
def test_the_last_report_of_service_is_what_is_charged(end: Event) -> None:
    machine = running()
    machine.handle(OutputChunk(pack_ids([7]), "x", service=7.0), 1.0)
    machine.handle(end, 2.0)
    assert machine.service == 9.0


def test_every_state_can_be_left_and_every_event_happens() -> None:
    assert set(TRANSITIONS) == set(CallState)
    assert all(
        any(state not in targets for targets in TRANSITIONS[state].values()) for state in CallState if state != "ended"
    )
    assert {event for state, events in TRANSITIONS.items() if state != "ended" for event in events} == set(EVENTS)


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_times_of_a_call_go_on_evenly_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    call = new_call(None)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + hours * 3_600_000_000_000)
    times = [call.timings.received, *(call.unix_time() for _ in range(3))]
    assert times == sorted(times)
    assert times[-1] - times[0] < 600e9, "and not an hour"
