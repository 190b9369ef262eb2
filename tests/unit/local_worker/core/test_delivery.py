"""Delivery: nothing lost, doubled or reordered; the first token and the end at once; nothing held for too long."""

import math
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.batch import SampledLogprobs
from local_worker.core.delivery import LATEST_SECONDS, TICK_SECONDS, Delivery, by_owner
from local_worker.core.events import RequestAccepted, RequestEnded, RequestEvents, RequestStarted, RequestTokens, joined
from local_worker.core.request import Request
from tests.unit.local_worker.engine.driving import make_request

SLACK = 1e-9  # of sums of floats


def opened(delivery: Delivery, tokens_per_message: int, arrival: int = 0, owner: str = "gateway") -> Request:
    request = make_request([1], arrival=arrival)
    request.owner, request.tokens_per_message = owner, tokens_per_message
    assert delivery.open(request)
    return request


def output(request: Request, *tokens: int) -> RequestTokens:
    """Return the output of these tokens; text, log-probabilities and service follow from them."""
    text = "".join(map(str, tokens))
    logprobs = [SampledLogprobs(-token, ()) for token in tokens]
    return RequestTokens(request, tokens, logprobs=logprobs, text=text, service=max(tokens, default=0))


def step(
    delivery: Delivery, now: float, *tokens: RequestTokens, ended: list[Request] | None = None
) -> list[RequestTokens]:
    """Return the output that leaves after a turn with these events."""
    ends = [RequestEnded(request, Outcome.COMPLETED) for request in ended or []]
    return delivery.deliver(RequestEvents(tokens=list(tokens), ended=ends), now).tokens


class Gathering(RuleBasedStateMachine):
    """A list of every request's outputs, with the time of each, is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.delivery = Delivery()
        self.wanted: dict[Request, int] = {}  # tokens per message of each open request
        self.added: dict[Request, list[tuple[float, int]]] = {}
        self.left: dict[Request, list[int]] = {}
        self.ticked_at = -math.inf

    def take(self, leaving: list[RequestTokens]) -> None:
        """Record what leaves, at the end of a step or when a timer calls."""
        ticks, ticked_at = False, self.ticked_at
        for leaves in leaving:
            request, tokens = leaves.request, leaves.tokens
            assert tokens, "an empty message"
            assert replace(leaves, tokens=tuple(tokens)) == output(request, *tokens)
            if request in self.wanted and self.left[request] and self.wanted[request] > 1:
                ticks = True
            if self.wanted.get(request) == 1:
                assert len(tokens) == 1
            self.left[request] += tokens
        if ticks:
            self.ticked_at = self.now
            assert not any(map(self.held, self.wanted)), "a tick releases all"
        assert not any(map(self.held, self.wanted)) or self.now < ticked_at + TICK_SECONDS, "held after a tick's time"

    def held(self, request: Request) -> list[tuple[float, int]]:
        return self.added[request][len(self.left[request]) :]

    @rule(tokens_per_message=st.sampled_from([1, 2, 4, 4, 4]), owner=st.sampled_from("ab"))
    def open(self, tokens_per_message: int, owner: str) -> None:
        request = opened(self.delivery, tokens_per_message, len(self.added), owner)
        self.wanted[request], self.added[request], self.left[request] = tokens_per_message, [], []

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(list(self.wanted)))
        repeated = make_request([1], arrival=known.arrival)
        repeated.owner = known.owner
        assert not self.delivery.open(repeated)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), ends=st.integers(0, 2))
    def step(self, data: st.DataObject, ends: int) -> None:
        """Some requests generate a token each; some of them end with it."""
        running = data.draw(st.lists(st.sampled_from(list(self.wanted)), unique=True, min_size=1))
        tokens = []
        for request in running:
            token = len(self.added[request])
            self.added[request].append((self.now, token))
            tokens.append(output(request, token))
        ended = running[:ends]
        for request in ended:
            del self.wanted[request]
        self.take(step(self.delivery, self.now, *tokens, ended=ended))
        for request in ended:
            assert not self.held(request), "the end leaves alone"
        for request in running[ends:]:
            assert len(self.held(request)) < self.wanted[request], "enough for a message is held"
            assert self.left[request], "the first token is held"

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(list(self.wanted)))
        del self.wanted[request]
        self.take(step(self.delivery, self.now, ended=[request]))
        assert not self.held(request)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.01, 0.03, 0.05, 1.0]), is_early=st.booleans())
    def time_passes(self, seconds: float, is_early: bool) -> None:
        """The timer calls at each time that is due, and sometimes too early."""
        until = self.now + seconds
        while self.delivery.due is not None and self.delivery.due <= until:
            self.now = self.delivery.due
            self.take(self.delivery.take(self.now))
        self.now = until
        if is_early:
            self.take(self.delivery.take(self.now))

    @invariant()
    def holds(self) -> None:
        self.delivery.check_invariants()
        assert len(self.delivery) == len(self.wanted)
        for owner in "ab":
            assert self.delivery.owned_by(owner) == [request for request in self.wanted if request.owner == owner]
        for request, added in self.added.items():
            assert self.left[request] == list(range(len(self.left[request]))), "in order, none twice"
            held = self.held(request)
            assert request in self.wanted or not held
            found = self.delivery.find(request.owner, request.id, request.attempt)
            assert found is (request if request in self.wanted else None)
            if held:
                since = held[0][0]
                assert self.now <= max(since, self.ticked_at + LATEST_SECONDS) + SLACK, "held too long"
            assert len(added) == len(self.left[request]) + len(held)


TestGathering = Gathering.TestCase


def test_requests_with_steps_of_10_ms_share_ticks_and_a_request_with_slow_steps_waits_for_none() -> None:
    delivery = Delivery()
    requests = [opened(delivery, 4, arrival) for arrival in range(2)]
    leaving = []
    for number in range(9):
        left = step(delivery, number / 100, *(output(request, number) for request in requests))
        leaving.append({each.request.id: list(each.tokens) for each in left})
    none: dict[str, list[int]] = {}
    together = {"r0": [2, 3, 4, 5], "r1": [2, 3, 4, 5]}
    assert leaving == [{"r0": [0], "r1": [0]}, {"r0": [1], "r1": [1]}, none, none, none, together, none, none, none]
    delivery.take(1.0)
    for second in (2.0, 3.0):
        assert [each.request for each in step(delivery, second, output(requests[0], 9))] == requests[:1]


@pytest.mark.parametrize("milliseconds", [5, 8, 10.3, 12, 15, 20.2, 25, 30, 39.9, 40.1, 70])
def test_no_timer_divides_a_message_while_all_steps_take_the_same_time(milliseconds: float) -> None:
    delivery = Delivery()
    request = opened(delivery, 4)
    messages = []
    for number in range(40):
        now = number * milliseconds / 1e3
        while delivery.due is not None and delivery.due < now:
            messages += delivery.take(delivery.due)
        messages += step(delivery, now, output(request, number))
    whole = min(4, math.ceil(TICK_SECONDS * 1e3 / milliseconds))
    assert {len(each.tokens) for each in messages[2:]} == {whole}


def test_as_many_tokens_as_a_message_carries_leave_before_the_tick() -> None:
    delivery = Delivery()
    request = opened(delivery, 4)
    for token in (0, 1):
        step(delivery, 0.0, output(request, token))
    for token in (2, 3, 4):
        assert step(delivery, 0.001, output(request, token)) == []
    assert delivery.due == LATEST_SECONDS
    [together] = step(delivery, 0.002, output(request, 5))
    assert list(together.tokens) == [2, 3, 4, 5]


def test_a_request_may_be_submitted_again_once_it_has_ended() -> None:
    delivery = Delivery()
    first = opened(delivery, 4)
    delivery.close(first)
    again = opened(delivery, 4)
    assert delivery.find("gateway", "r0", 1) is again
    assert delivery.find("gateway", "r0", 2) is None
    assert delivery.find("another gateway", "r0", 1) is None


def test_tokens_of_one_request_are_joined_in_their_order() -> None:
    request = make_request([1])
    prompt, end = [SampledLogprobs(-5.0, ())], FinishReason.LENGTH
    one, two = replace(output(request, 7), prompt_logprobs=prompt), replace(output(request, 8, 9), finish=end)
    assert joined([one]) is one
    logprobs = [*one.logprobs, *two.logprobs]
    assert joined([one, two]) == RequestTokens(request, [7, 8, 9], end, logprobs, prompt, text="789", service=9)


def test_events_are_divided_among_the_owners_of_the_requests_in_their_order() -> None:
    delivery = Delivery()
    a, b, other = opened(delivery, 1, 0, "x"), opened(delivery, 1, 1, "y"), opened(delivery, 1, 2, "x")
    ends = [RequestEnded(request, Outcome.COMPLETED) for request in (other, b)]
    tokens = [output(a, 1), output(b, 2), output(other, 3)]
    events = RequestEvents([RequestAccepted(a, 0)], [RequestStarted(b, 0)], [a], tokens, ends)
    assert by_owner(events) == {
        "x": RequestEvents(tokens=[tokens[0], tokens[2]], ended=ends[:1]),
        "y": RequestEvents(started=events.started, tokens=tokens[1:2], ended=ends[1:]),
    }
