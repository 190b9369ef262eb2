"""The worker's machine, compared with a naive model: requests end once, for the right reason, with the right text."""

import codecs
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.batch import StepResult
from local_worker.core.events import RequestTokens
from local_worker.core.limits import AdmissionMode
from local_worker.core.machine import (
    TRANSITIONS,
    AbortRequest,
    RequestEvent,
    RequestsAdmitted,
    RequestsAdvanced,
    RequestsFailed,
    RequestState,
    SubmitRequest,
    TimePassed,
    WorkerMachine,
)
from local_worker.core.output_text import OutputText
from local_worker.core.plan import Plan
from local_worker.core.request import Request
from local_worker.tokenizer import ByteTokenizer
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import make_batcher, make_request

EOS = 256
LONGEST_PROMPT = 12
MOST_WAITING = 4
TOKENS = st.sampled_from([*b"abab\xc3\xa9" * 3, EOS])
STOPS = st.lists(st.sampled_from(["aa", "ab", "bé", "abab"]), max_size=2).map(tuple)


def asked(request: Request, *stops: str) -> Request:
    request.text = OutputText(ByteTokenizer().decoder(), stops)
    return request


def decoded(tokens: list[int]) -> str:
    """The text of a whole output at once, without an incomplete character at its end."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(tokens))


@dataclass
class Life:
    """The model's state of a request, and the events that the machine has returned for it."""

    request: Request
    stops: tuple[str, ...]
    sampled: list[int] = field(default_factory=list)  # until its end
    has_started: bool = False
    end: tuple[Outcome, FinishReason | None] | None = None  # as it has to be
    told: list[str] = field(default_factory=list)  # kinds of events, in order
    told_tokens: list[int] = field(default_factory=list)
    told_text: str = ""
    told_end: tuple[Outcome, FinishReason | None] | None = None
    state: RequestState = RequestState.WAITING  # at the last look

    @property
    def text(self) -> str:
        """Decode the whole output, and cut it at the stop string that was complete first."""
        tokens = [token for token in self.sampled if token != EOS]
        for length in range(len(tokens) + 1):
            text = decoded(tokens[:length])
            found = [text.find(stop) for stop in self.stops if stop in text]
            if found:
                return text[: min(found)]
        return decoded(tokens)

    def sample(self, token: int) -> None:
        """Append one token, and end the request if the token ends the output."""
        self.sampled.append(token)
        if token == EOS or any(stop in decoded(self.sampled) for stop in self.stops):
            self.end = (Outcome.COMPLETED, FinishReason.STOP)
        elif len(self.sampled) == self.request.sampling.max_tokens:
            self.end = (Outcome.COMPLETED, FinishReason.LENGTH)

    def check(self) -> None:
        """Assert that each event was reported exactly once."""
        assert self.told_tokens == self.sampled
        assert self.told_end == self.end
        order = ["accepted", *["started"][: self.has_started], *["tokens"] * len(self.sampled)]
        assert self.told == [*order, *["ended"][: self.end is not None]]
        if self.end is not None and self.end[0] is Outcome.COMPLETED:
            assert self.told_text == self.text
        else:
            assert self.text.startswith(self.told_text)


class RequestLives(RuleBasedStateMachine):
    """Submits, aborts, deadlines, steps that end or fail, one of them ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.batcher = make_batcher(
            pages=32,
            token_budget=8,
            max_running=3,
            eos=(EOS,),
            max_prompt_tokens=LONGEST_PROMPT,
            max_waiting=MOST_WAITING,
        )
        self.machine = WorkerMachine(self.batcher.queue)
        self.lives: dict[Request, Life] = {}
        self.plans: deque[Plan] = deque()
        self.now = 0.0

    def moved(self, *events: RequestEvent) -> None:
        """Assert that one of `events` leads each request whose state has changed to its new state."""
        for life in self.lives.values():
            state = self.machine.state(life.request)
            if state is not life.state:
                assert state in [TRANSITIONS[life.state].get(event) for event in events]
                life.state = state

    @property
    def open(self) -> list[Life]:
        return [life for life in self.lives.values() if life.end is None]

    @rule(
        length=st.integers(1, LONGEST_PROMPT + 1),
        output=st.integers(1, 9),
        stops=STOPS,
        lifetime=st.none() | st.integers(1, 6),
    )
    def submit(self, length: int, output: int, stops: tuple[str, ...], lifetime: int | None) -> None:
        request = make_request([1] * length, arrival=len(self.lives), sampling=SamplingParams(max_tokens=output))
        request.deadline = None if lifetime is None else self.now + lifetime
        waiting = [life for life in self.open if not life.has_started]
        self.lives[request] = Life(asked(request, *stops), stops)
        request.queued_at = self.now
        self.machine.handle(SubmitRequest(request), self.now)
        self.moved(RequestEvent.REFUSED, RequestEvent.DROPPED)
        if length > LONGEST_PROMPT:
            self.lives[request].end = (Outcome.REJECTED_TOO_LONG, None)
        elif len(waiting) == MOST_WAITING:
            # The choice of the dropped request is tested with the queue; the machine must end exactly that one.
            here = {*self.batcher.queue.waiting}
            (loser,) = [life for life in (*waiting, self.lives[request]) if life.request not in here]
            loser.end = (Outcome.REJECTED_QUEUE_FULL, None)

    @precondition(lambda self: self.lives)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        life = data.draw(st.sampled_from(list(self.lives.values())))
        self.machine.handle(AbortRequest(life.request), self.now)
        self.moved(RequestEvent.ABORTED)
        if life.end is None:
            life.end = (Outcome.CANCELLED, None)

    @rule(seconds=st.integers(0, 3))
    def expire(self, seconds: int) -> None:
        self.now += seconds
        late = [life for life in self.open if (life.request.deadline or self.now + 1) <= self.now]
        self.machine.handle(TimePassed(), self.now)
        self.moved(RequestEvent.EXPIRED)
        for life in late:
            life.end = (Outcome.DEADLINE_EXCEEDED, None)
        following = self.machine.next_deadline()
        deadlines = [life.request.deadline for life in self.open if life.request.deadline is not None]
        assert following == min(deadlines, default=None)

    @precondition(lambda self: len(self.plans) < 2)
    @rule()
    def plan(self) -> None:
        plan = self.batcher.plan(self.now)
        self.moved(RequestEvent.ADMITTED, RequestEvent.PREEMPTED)
        if plan is not None:
            self.machine.handle(RequestsAdmitted(plan.admitted), self.now)
            self.plans.append(plan)
            for request in plan.admitted:
                self.lives[request].has_started = True

    @precondition(lambda self: self.plans)
    @rule(tokens=st.lists(TOKENS, min_size=3, max_size=3))
    def commit(self, tokens: list[int]) -> None:
        plan = self.plans.popleft()
        sampling = [request for request, piece in plan.parts if piece.samples]
        for request, token in zip(sampling, tokens, strict=False):
            if self.lives[request].end is None:
                self.lives[request].sample(token)
        advances = self.batcher.commit(plan, StepResult(tuple(tokens[: len(sampling)])))
        self.machine.handle(RequestsAdvanced(advances), self.now)
        self.moved(RequestEvent.ADVANCED, RequestEvent.COMPLETED)
        self.tells_what_happened()

    @rule(tokens=st.lists(st.lists(TOKENS, min_size=3, max_size=3), min_size=1, max_size=9))
    def run(self, tokens: list[list[int]]) -> None:
        """Run many steps: otherwise few outputs would end."""
        for step in tokens:
            if not self.plans:
                self.plan()
            if self.plans:
                self.commit(step)

    @precondition(lambda self: self.plans)
    @rule()
    def fail(self) -> None:
        """Fail a step, and the steps built on it."""
        while self.plans:
            plan = self.plans.popleft()
            self.machine.handle(RequestsFailed(self.batcher.fail(plan), Outcome.INTERNAL, "the step failed"), self.now)
            self.moved(RequestEvent.FAILED)
            for request in plan.requests:
                if self.lives[request].end is None:
                    self.lives[request].end = (Outcome.INTERNAL, None)

    @invariant()
    def tells_what_happened(self) -> None:
        events = self.machine.take_events()
        for accepted in events.accepted:
            self.lives[accepted.request].told.append("accepted")
        for started in events.started:
            self.lives[started.request].told.append("started")
        for tokens in events.tokens:
            life = self.lives[tokens.request]
            life.told.append("tokens")
            life.told_tokens += tokens.tokens
            life.told_text += tokens.text
        for end in events.ended:
            life = self.lives[end.request]
            life.told.append("ended")
            life.told_text += end.text
            life.told_end = (end.outcome, end.reason)
        assert not self.machine.has_events
        for life in self.lives.values():
            life.check()

    @invariant()
    def keeps_the_open_ones(self) -> None:
        self.machine.check_invariants()
        assert [accepted.request for accepted in self.machine.accepted] == [life.request for life in self.open]
        for life in self.lives.values():
            request = life.request
            times = request.queued_at, request.started_at, request.first_token_at, request.ended_at
            assert (request.started_at is not None) == life.has_started
            assert (request.first_token_at is not None) == bool(life.sampled)
            assert (request.ended_at is not None) == (life.end is not None)
            known = [time for time in times if time is not None]
            assert known == sorted(known)


TestRequestLives = RequestLives.TestCase
TestRequestLives.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_preempted_request_does_not_start_twice() -> None:
    batcher = make_batcher(pages=4, admission=AdmissionMode.OPTIMISTIC)
    machine = WorkerMachine(batcher.queue)
    for number in range(2):
        request = make_request([number] * 4, arrival=number, sampling=SamplingParams(max_tokens=9, ignore_eos=True))
        machine.handle(SubmitRequest(asked(request)), 0.0)
    entered: list[str] = []
    while (plan := batcher.plan(1.0)) is not None:
        machine.handle(RequestsAdmitted(plan.admitted), 1.0)
        entered += [request.id for request in plan.admitted]
        result = StepResult((97,) * sum(piece.samples for piece in plan.batch.slices))
        machine.handle(RequestsAdvanced(batcher.commit(plan, result)), 2.0)
    events = machine.take_events()
    assert sorted(entered) == ["r0", "r1", "r1"]
    assert [started.request.id for started in events.started] == ["r0", "r1"]
    assert [end.reason for end in events.ended] == [FinishReason.LENGTH] * 2
    machine.check_invariants()


def test_a_stop_string_ends_its_request_and_frees_its_place() -> None:
    batcher = make_batcher()
    machine = WorkerMachine(batcher.queue)
    machine.handle(SubmitRequest(asked(make_request([1], sampling=SamplingParams(max_tokens=9)), "!")), 0.0)
    plan = batcher.plan(1.0)
    assert plan is not None
    machine.handle(RequestsAdvanced(batcher.commit(plan, StepResult((ord("!"),)))), 2.0)
    [ended] = machine.take_events().ended
    assert (ended.outcome, ended.reason, ended.stop_string) == (Outcome.COMPLETED, FinishReason.STOP, "!")
    assert (len(machine.accepted), batcher.plan(3.0)) == (0, None)
    machine.check_invariants()


def test_a_request_that_is_dropped_for_another_ends() -> None:
    machine = WorkerMachine(make_batcher(max_waiting=2).queue)
    requests = [asked(make_request([1], arrival=arrival)) for arrival in (0, 3, 1)]  # of clients c0, c0 and c1
    for request in requests:
        machine.handle(SubmitRequest(request), 1.0)
    [ended] = machine.take_events().ended
    assert (ended.request, ended.outcome) == (requests[1], Outcome.REJECTED_QUEUE_FULL)
    assert "client 'c0' has the most" in ended.message
    assert [accepted.request for accepted in machine.accepted] == [requests[0], requests[2]]
    machine.check_invariants()


def test_requests_that_cannot_go_on_here_leave_the_queue_and_the_batch() -> None:
    batcher = make_batcher(max_running=1)
    machine = WorkerMachine(batcher.queue)
    requests = [asked(make_request([1], arrival=arrival)) for arrival in range(2)]
    for request in requests:
        machine.handle(SubmitRequest(request), 0.0)
    assert batcher.plan(1.0) is not None
    machine.handle(RequestsFailed(requests, Outcome.UNAVAILABLE, "drains"), 2.0)
    ends = [(end.outcome, end.message) for end in machine.take_events().ended]
    assert ends == [(Outcome.UNAVAILABLE, "drains")] * 2
    assert (len(batcher.queue.running), len(batcher.queue.waiting)) == (0, 0)
    machine.check_invariants()


def test_a_request_tells_how_much_of_its_prompt_was_cached_when_it_was_accepted() -> None:
    batcher = make_batcher()
    machine = WorkerMachine(batcher.queue)
    for arrival in range(2):
        sampling = SamplingParams(max_tokens=1, ignore_eos=True)
        machine.handle(SubmitRequest(make_request([1] * 9, arrival=arrival, sampling=sampling)), 0.0)
        [accepted] = machine.take_events().accepted
        assert accepted.cached_tokens == 8 * arrival
        plan = batcher.plan(1.0)
        assert plan is not None
        machine.handle(RequestsAdvanced(batcher.commit(plan, StepResult((97,)))), 1.0)
        machine.take_events()


def test_an_update_holds_the_load_the_accounts_and_the_blocks_that_changed() -> None:
    batcher = make_batcher(policy="lcf")
    machine = WorkerMachine(batcher.queue)
    for arrival in range(2):
        machine.handle(SubmitRequest(make_request([1] * 5, arrival=arrival)), 7.0)
    for _ in range(2):
        machine.measured_step(2.0)
    update = machine.take_update(7.0, is_healthy=False)
    assert update.load is not None
    assert (update.load.waiting, update.load.running, update.load.step_seconds) == (2, 0, pytest.approx(0.38))
    assert (update.oldest_queued_at, update.healthy) == (7.0, False)
    assert [(account.client, account.waiting) for account in update.accounts] == [("c0", 1), ("c1", 1)]
    plan = batcher.plan(8.0)
    assert plan is not None
    machine.handle(RequestsAdvanced(batcher.commit(plan, StepResult((97, 97)))), 8.0)
    update = machine.take_update(8.0, is_healthy=True)
    assert update.load is not None
    assert (update.load.waiting, update.load.running, len(update.cached), update.healthy) == (0, 2, 1, True)
    assert [(account.client, account.service) for account in update.accounts] == [("c0", 7.0), ("c1", 7.0)]


def test_the_first_update_has_the_load_before_any_request_has_come() -> None:
    assert WorkerMachine(make_batcher().queue).take_update(0.0, is_healthy=True).load is not None


def test_steps_that_bring_nothing_but_tokens_are_reported_together() -> None:
    batcher = make_batcher(policy="lcf")
    machine = WorkerMachine(batcher.queue)
    machine.handle(SubmitRequest(make_request([1] * 5, sampling=SamplingParams(max_tokens=4, ignore_eos=True))), 0.0)
    updates = [machine.take_update(0.0, is_healthy=True)]
    for now in (0.0, 0.01, 0.06, 0.07):
        plan = batcher.plan(now)
        assert plan is not None
        machine.handle(RequestsAdmitted(plan.admitted), now)
        machine.handle(RequestsAdvanced(batcher.commit(plan, StepResult((97,)))), now)
        updates.append(machine.take_update(now, is_healthy=True))
    services = [[account.service for account in update.accounts] for update in updates]
    assert services == [[0.0], [7.0], [], [11.0], [13.0]], "it comes, starts, goes on, goes on for long, and ends"
    assert [update.load is not None for update in updates] == list(map(bool, services))
    assert [len(update.events.tokens) for update in updates] == [0, 1, 1, 1, 1], "tokens never wait for a report"


def test_tokens_before_the_one_that_ends_an_output_are_its_text() -> None:
    machine = WorkerMachine(make_batcher().queue)
    request = asked(make_request([1], sampling=SamplingParams(max_tokens=9)))
    machine.handle(RequestsAdvanced([RequestTokens(request, [*b"ab", EOS], FinishReason.STOP)]), 1.0)
    assert [(tokens.tokens, tokens.text) for tokens in machine.take_events().tokens] == [([*b"ab", EOS], "ab")]


def test_a_request_whose_output_cannot_go_on_ends_with_the_reason_and_without_more_text() -> None:
    machine = WorkerMachine(make_batcher().queue)
    request = asked(make_request([1], sampling=SamplingParams(max_tokens=9)))
    machine.handle(RequestsAdvanced([RequestTokens(request, (), failure="no token is allowed")]), 1.0)
    events = machine.take_events()
    assert [(end.outcome, end.message) for end in events.ended] == [(Outcome.REJECTED_INVALID, "no token is allowed")]
    assert not events.tokens


def test_output_of_earlier_attempts_is_not_sent_again() -> None:
    """Text that earlier attempts held back is sent with the token that releases it; a stop string may start in it."""
    text = OutputText(ByteTokenizer().decoder(), ("END",), generated=b"so far E")
    assert text.push(b"x") == ("Ex", "")
    again = OutputText(ByteTokenizer().decoder(), ("END",), generated=b"so far E")
    assert again.push(b"ND!") == ("", "END")


def test_no_stop_string_is_looked_for_in_the_next_tokens_after_those_of_earlier_attempts() -> None:
    text = OutputText(ByteTokenizer().decoder(), ("END",), generated=b"so", min_tokens=3)
    assert text.push(b"END") == ("END", "")
    assert text.push(b"END") == ("", "END")
