"""The job table, compared with a naive model: every job ends once, for the right reason and with the right text."""

import codecs
from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.batch import SampledLogprobs, StepResult
from local_worker.core.job import Job
from local_worker.core.job_table import JobTable
from local_worker.core.limits import AdmissionMode
from local_worker.core.output_text import OutputText
from local_worker.core.plan import Advance, Plan
from local_worker.core.request import Request
from local_worker.tokenizer import ByteTokenizer
from serving.sampling_params import SamplingParams
from tests.local_worker.engine.driving import make_batcher, make_request

EOS = 256
LONGEST_PROMPT = 12
MOST_WAITING = 4
OWNERS = st.sampled_from(["gateway-1", "gateway-2"])
TOKENS = st.sampled_from([*b"abab\xc3\xa9" * 3, EOS])
STOPS = st.lists(st.sampled_from(["aa", "ab", "bé", "abab"]), max_size=2).map(tuple)


def decoded(tokens: list[int]) -> str:
    """The text of a whole output at once, without an incomplete character at its end."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(tokens))


@dataclass
class Life:
    """The model's state of a job, and the events that the table has returned for it."""

    job: Job[str]
    stops: tuple[str, ...]
    sampled: list[int] = field(default_factory=list)  # until its end
    has_started: bool = False
    end: tuple[Outcome, FinishReason | None] | None = None  # as it has to be
    told: list[str] = field(default_factory=list)  # kinds of events, in order
    told_tokens: list[int] = field(default_factory=list)
    told_text: str = ""
    told_end: tuple[Outcome, FinishReason | None] | None = None

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
        """Append one token, and end the job if the token ends the output."""
        self.sampled.append(token)
        if token == EOS or any(stop in decoded(self.sampled) for stop in self.stops):
            self.end = (Outcome.COMPLETED, FinishReason.STOP)
        elif len(self.sampled) == self.job.request.sampling.max_tokens:
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


class JobTableMachine(RuleBasedStateMachine):
    """Submits, repeats, aborts of one and of all, deadlines, steps that end or fail, one of them ahead."""

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
        self.table: JobTable[str] = JobTable(self.batcher.queue)
        self.lives: dict[Request, Life] = {}
        self.plans: deque[Plan] = deque()
        self.now = 0.0

    @property
    def open(self) -> list[Life]:
        return [life for life in self.lives.values() if life.end is None]

    @rule(
        owner=OWNERS,
        length=st.integers(1, LONGEST_PROMPT + 1),
        output=st.integers(1, 9),
        stops=STOPS,
        lifetime=st.none() | st.integers(1, 6),
    )
    def submit(self, owner: str, length: int, output: int, stops: tuple[str, ...], lifetime: int | None) -> None:
        request = make_request([1] * length, arrival=len(self.lives), sampling=SamplingParams(max_tokens=output))
        request.deadline = None if lifetime is None else self.now + lifetime
        job = Job(owner, request, 1, OutputText(ByteTokenizer().decoder(), stops), self.now)
        waiting = [life for life in self.open if not life.has_started]
        self.lives[request] = Life(job, stops)
        self.table.submit(job, self.now)
        if length > LONGEST_PROMPT:
            self.lives[request].end = (Outcome.REJECTED_TOO_LONG, None)
        elif len(waiting) == MOST_WAITING:
            # The choice of the dropped request is tested with the queue; the table must end exactly that one.
            here = {*self.batcher.queue.waiting}
            (loser,) = [life for life in (*waiting, self.lives[request]) if life.job.request not in here]
            loser.end = (Outcome.REJECTED_QUEUE_FULL, None)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def submit_again(self, data: st.DataObject) -> None:
        life = data.draw(st.sampled_from(self.open))
        repeated = make_request([1], arrival=life.job.request.arrival)
        self.table.submit(Job(life.job.owner, repeated, 1, life.job.text, self.now), self.now)

    @rule(data=st.data(), owner=OWNERS, attempt=st.integers(1, 2))
    def abort(self, data: st.DataObject, owner: str, attempt: int) -> None:
        number = data.draw(st.integers(0, len(self.lives)))
        self.table.abort(owner, f"r{number}", attempt, self.now)
        for life in self.open:
            if (life.job.owner, life.job.request.id, life.job.attempt) == (owner, f"r{number}", attempt):
                life.end = (Outcome.CANCELLED, None)

    @rule(owner=OWNERS)
    def abort_all(self, owner: str) -> None:
        self.table.abort_all(owner, self.now)
        for life in self.open:
            if life.job.owner == owner:
                life.end = (Outcome.CANCELLED, None)

    @rule(seconds=st.integers(0, 3))
    def expire(self, seconds: int) -> None:
        self.now += seconds
        late = [life for life in self.open if (life.job.request.deadline or self.now + 1) <= self.now]
        assert self.table.expire(self.now) == len(late)
        for life in late:
            life.end = (Outcome.DEADLINE_EXCEEDED, None)
        following = self.table.next_deadline()
        deadlines = [life.job.request.deadline for life in self.open if life.job.request.deadline is not None]
        assert following == min(deadlines, default=None)

    @precondition(lambda self: len(self.plans) < 2)
    @rule()
    def plan(self) -> None:
        plan = self.batcher.plan(self.now)
        if plan is not None:
            self.table.admitted(plan.admitted, self.now)
            self.plans.append(plan)
            for request in plan.admitted:
                assert self.table.owner(request) == self.lives[request].job.owner
                self.lives[request].has_started = True

    @precondition(lambda self: self.plans)
    @rule(tokens=st.lists(TOKENS, min_size=3, max_size=3))
    def commit(self, tokens: list[int]) -> None:
        plan = self.plans.popleft()
        sampling = [request for request, piece in plan.parts if piece.samples]
        for request, token in zip(sampling, tokens, strict=False):
            if self.lives[request].end is None:
                self.lives[request].sample(token)
        self.table.advance(self.batcher.commit(plan, StepResult(tuple(tokens[: len(sampling)]))), self.now)
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
            self.table.end(self.batcher.fail(plan), Outcome.INTERNAL, "the step failed", self.now)
            for request in plan.requests:
                if self.lives[request].end is None:
                    self.lives[request].end = (Outcome.INTERNAL, None)

    @invariant()
    def tells_what_happened(self) -> None:
        events = self.table.take_events()
        for job in events.accepted:
            self.lives[job.request].told.append("accepted")
        for started in events.started:
            self.lives[started.job.request].told.append("started")
        for job, output in events.tokens:
            life = self.lives[job.request]
            assert (output.request_id, output.attempt) == (job.request.id, job.attempt)
            life.told.append("tokens")
            life.told_tokens += output.tokens
            life.told_text += output.text
        for end in events.ended:
            life = self.lives[end.job.request]
            life.told.append("ended")
            life.told_text += end.text
            life.told_end = (end.outcome, end.reason)
        for life in self.lives.values():
            life.check()

    @invariant()
    def keeps_the_open_ones(self) -> None:
        self.table.check_invariants()
        assert [*self.table.jobs] == [life.job for life in self.open]
        for life in self.lives.values():
            job, times = life.job, (life.job.queued_at, life.job.started_at, life.job.first_token_at, life.job.ended_at)
            assert (job.started_at is not None) == life.has_started
            assert (job.first_token_at is not None) == bool(life.sampled)
            assert (job.ended_at is not None) == (life.end is not None)
            known = [time for time in times if time is not None]
            assert known == sorted(known)


TestJobTable = JobTableMachine.TestCase
TestJobTable.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_preempted_job_does_not_start_twice() -> None:
    batcher = make_batcher(pages=4, admission=AdmissionMode.OPTIMISTIC)
    table: JobTable[str] = JobTable(batcher.queue)
    for number in range(2):
        request = make_request([number] * 4, arrival=number, sampling=SamplingParams(max_tokens=9, ignore_eos=True))
        table.submit(Job("gateway", request, 1, OutputText(ByteTokenizer().decoder()), 0.0), 0.0)
    entered: list[str] = []
    while (plan := batcher.plan(1.0)) is not None:
        table.admitted(plan.admitted, 1.0)
        entered += [request.id for request in plan.admitted]
        result = StepResult((97,) * sum(piece.samples for piece in plan.batch.slices))
        table.advance(batcher.commit(plan, result), 2.0)
    events = table.take_events()
    assert sorted(entered) == ["r0", "r1", "r1"]
    assert [started.job.request.id for started in events.started] == ["r0", "r1"]
    assert [end.reason for end in events.ended] == [FinishReason.LENGTH] * 2
    table.check_invariants()


def test_a_stop_string_ends_its_job_and_frees_its_place() -> None:
    batcher = make_batcher()
    table: JobTable[str] = JobTable(batcher.queue)
    request = make_request([1], sampling=SamplingParams(max_tokens=9))
    table.submit(Job("gateway", request, 1, OutputText(ByteTokenizer().decoder(), ("!",)), 0.0), 0.0)
    plan = batcher.plan(1.0)
    assert plan is not None
    table.advance(batcher.commit(plan, StepResult((ord("!"),))), 2.0)
    [ended] = table.take_events().ended
    assert (ended.outcome, ended.reason, ended.stop_string) == (Outcome.COMPLETED, FinishReason.STOP, "!")
    assert (len(table.jobs), batcher.plan(3.0)) == (0, None)
    table.check_invariants()


def test_a_job_that_is_dropped_for_another_ends() -> None:
    table: JobTable[str] = JobTable(make_batcher(max_waiting=2).queue)
    jobs = [
        Job("gateway", make_request([1], arrival=arrival), 1, OutputText(ByteTokenizer().decoder()), 0.0)
        for arrival in (0, 3, 1)  # of clients c0, c0 and c1
    ]
    for job in jobs:
        table.submit(job, 1.0)
    [ended] = table.take_events().ended
    assert (ended.job, ended.outcome) == (jobs[1], Outcome.REJECTED_QUEUE_FULL)
    assert "client 'c0' has the most" in ended.message
    assert [*table.jobs] == [jobs[0], jobs[2]]
    table.check_invariants()


def test_jobs_that_cannot_go_on_here_leave_the_queue_and_the_batch() -> None:
    batcher = make_batcher(max_running=1)
    table: JobTable[str] = JobTable(batcher.queue)
    requests = [make_request([1], arrival=arrival) for arrival in range(2)]
    for request in requests:
        table.submit(Job("gateway", request, 1, OutputText(ByteTokenizer().decoder()), 0.0), 0.0)
    assert batcher.plan(1.0) is not None
    table.end(requests, Outcome.UNAVAILABLE, "drains", 2.0)
    ends = [(end.outcome, end.message) for end in table.take_events().ended]
    assert ends == [(Outcome.UNAVAILABLE, "drains")] * 2
    assert (len(batcher.queue.running), len(batcher.queue.waiting), len(table.jobs)) == (0, 0, 0)
    table.check_invariants()


def test_tokens_before_the_one_that_ends_an_output_are_its_text() -> None:
    batcher = make_batcher()
    table: JobTable[str] = JobTable(batcher.queue)
    request = make_request([1], sampling=SamplingParams(max_tokens=9))
    table.submit(Job("gateway", request, 1, OutputText(ByteTokenizer().decoder()), 0.0), 0.0)
    table.advance([Advance(request, [*b"ab", EOS], FinishReason.STOP)], 1.0)
    events = table.take_events()
    assert [(output.tokens, output.text) for _, output in events.tokens] == [([*b"ab", EOS], "ab")]


def test_log_probabilities_of_the_prompt_and_of_tokens_are_spelled() -> None:
    table: JobTable[str] = JobTable(make_batcher().queue)
    request = make_request([*b"xy"], sampling=SamplingParams(max_tokens=9))
    table.submit(Job("gateway", request, 1, OutputText(ByteTokenizer().decoder()), 0.0), 0.0)
    sampled, scored = SampledLogprobs(-0.5, ((ord("b"), -0.25),)), SampledLogprobs(-0.75, ())
    table.advance([Advance(request, b"a", None, [sampled], [scored]), Advance(request, b"c", None)], 1.0)
    first, second = (output for _, output in table.take_events().tokens)
    assert [*first.logprobs] == [(b"a", -0.5, ((ord("b"), b"b", -0.25),))]
    assert [*first.prompt_logprobs] == [(b"x", 0.0, ()), (b"y", -0.75, ())]
    assert not second.logprobs


def test_a_job_whose_output_cannot_go_on_ends_with_the_reason_and_without_more_text() -> None:
    table: JobTable[str] = JobTable(make_batcher().queue)
    request = make_request([1], sampling=SamplingParams(max_tokens=9))
    table.submit(Job("gateway", request, 1, OutputText(ByteTokenizer().decoder()), 0.0), 0.0)
    table.advance([Advance(request, (), None, failure="no token is allowed")], 1.0)
    events = table.take_events()
    assert [(end.outcome, end.message) for end in events.ended] == [(Outcome.REJECTED_INVALID, "no token is allowed")]
    assert (len(events.tokens), len(table.jobs)) == (0, 0)


def test_output_of_earlier_attempts_is_not_sent_again() -> None:
    """Text that earlier attempts held back is sent with the token that releases it; a stop string may start in it."""
    text = OutputText(ByteTokenizer().decoder(), ("END",), generated=b"so far E")
    assert text.push(b"x") == ("Ex", "")
    again = OutputText(ByteTokenizer().decoder(), ("END",), generated=b"so far E")
    assert again.push(b"ND!") == ("", "END")
