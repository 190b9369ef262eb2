"""Gathering: nothing lost, doubled or reordered; the first token and the end at once; nothing held for too long."""

import math

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from local_worker.core.output import Output, SpelledLogprobs
from local_worker.core.token_gatherer import LATEST_SECONDS, TICK_SECONDS, TokenGatherer

SLACK = 1e-9  # of sums of floats


def output(*tokens: int) -> Output:
    """Return the output of these tokens; text, log-probabilities and service follow from them."""
    text = "".join(map(str, tokens))
    logprobs = [SpelledLogprobs(b"", -token, ()) for token in tokens]
    return Output("", 1, tokens, text, logprobs, max(tokens, default=0))


class Gathering(RuleBasedStateMachine):
    """A list of every attempt's outputs, with the time of each, is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.gatherer: TokenGatherer[int] = TokenGatherer()
        self.wanted: dict[int, int] = {}  # tokens per message of each open attempt
        self.added: dict[int, list[tuple[float, int]]] = {}
        self.left: dict[int, list[int]] = {}
        self.ticked_at = -math.inf

    def take(self) -> None:
        """Take what leaves, at the end of a step or when a timer calls."""
        ticks, ticked_at = False, self.ticked_at
        for attempt, (_, _, tokens, text, logprobs, service, prompt) in self.gatherer.take(self.now):
            assert tokens, "an empty message"
            assert (text, logprobs, service, tuple(prompt)) == output(*tokens)[3:]
            if attempt in self.wanted and self.left[attempt] and self.wanted[attempt] > 1:
                ticks = True
            if self.wanted.get(attempt) == 1:
                assert len(tokens) == 1
            self.left[attempt] += tokens
        if ticks:
            self.ticked_at = self.now
            assert not any(map(self.held, self.wanted)), "a tick releases all"
        assert not any(map(self.held, self.wanted)) or self.now < ticked_at + TICK_SECONDS, "held after a tick's time"

    def held(self, attempt: int) -> list[tuple[float, int]]:
        return self.added[attempt][len(self.left[attempt]) :]

    @rule(tokens_per_message=st.sampled_from([1, 2, 4, 4, 4]))
    def begin(self, tokens_per_message: int) -> None:
        attempt = len(self.added)
        self.gatherer.begin(attempt, tokens_per_message)
        self.gatherer.begin(attempt, 9)  # a repeated message
        self.wanted[attempt], self.added[attempt], self.left[attempt] = tokens_per_message, [], []

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), ends=st.integers(0, 2))
    def step(self, data: st.DataObject, ends: int) -> None:
        """Some attempts generate a token each; some of them end with it."""
        running = data.draw(st.lists(st.sampled_from(sorted(self.wanted)), unique=True, min_size=1))
        for attempt in running:
            token = len(self.added[attempt])
            self.added[attempt].append((self.now, token))
            self.gatherer.add(attempt, output(token), self.now)
        ended = running[:ends]
        for attempt in ended:
            self.gatherer.end(attempt)
            del self.wanted[attempt]
        self.take()
        for attempt in ended:
            assert not self.held(attempt), "the end leaves alone"
        for attempt in set(running) & set(self.wanted):
            assert len(self.held(attempt)) < self.wanted[attempt], "enough for a message is held"
            assert self.left[attempt], "the first token is held"

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.wanted)))
        del self.wanted[attempt]
        self.gatherer.end(attempt)
        self.take()
        assert not self.held(attempt)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.01, 0.03, 0.05, 1.0]), is_early=st.booleans())
    def time_passes(self, seconds: float, is_early: bool) -> None:
        """The timer calls at each time that is due, and sometimes too early."""
        until = self.now + seconds
        while self.gatherer.due is not None and self.gatherer.due <= until:
            self.now = self.gatherer.due
            self.take()
        self.now = until
        if is_early:
            self.take()

    @invariant()
    def holds(self) -> None:
        self.gatherer.check_invariants()
        assert len(self.gatherer) == len(self.wanted)
        for attempt, added in self.added.items():
            assert self.left[attempt] == list(range(len(self.left[attempt]))), "in order, none twice"
            held = self.held(attempt)
            assert attempt in self.wanted or not held
            if held:
                since = held[0][0]
                assert self.now <= max(since, self.ticked_at + LATEST_SECONDS) + SLACK, "held too long"
            assert len(added) == len(self.left[attempt]) + len(held)


TestGathering = Gathering.TestCase


def test_attempts_with_steps_of_10_ms_share_ticks_and_an_attempt_with_slow_steps_waits_for_none() -> None:
    gatherer: TokenGatherer[str] = TokenGatherer()
    gatherer.begin("a", 4)
    gatherer.begin("b", 4)
    leaving = []
    for step in range(9):
        for attempt in ("a", "b"):
            gatherer.add(attempt, output(step), step / 100)
        leaving.append({attempt: list(each.tokens) for attempt, each in gatherer.take(step / 100)})
    none: dict[str, list[int]] = {}
    together = {"a": [2, 3, 4, 5], "b": [2, 3, 4, 5]}
    assert leaving == [{"a": [0], "b": [0]}, {"a": [1], "b": [1]}, none, none, none, together, none, none, none]
    gatherer.take(1.0)
    for second in (2.0, 3.0):
        gatherer.add("a", output(9), second)
        assert [attempt for attempt, _ in gatherer.take(second)] == ["a"]


@pytest.mark.parametrize("milliseconds", [5, 8, 10.3, 12, 15, 20.2, 25, 30, 39.9, 40.1, 70])
def test_no_timer_divides_a_message_while_all_steps_take_the_same_time(milliseconds: float) -> None:
    gatherer: TokenGatherer[str] = TokenGatherer()
    gatherer.begin("a", 4)
    messages = []
    for step in range(40):
        now = step * milliseconds / 1e3
        while gatherer.due is not None and gatherer.due < now:
            messages += gatherer.take(gatherer.due)
        gatherer.add("a", output(step), now)
        messages += gatherer.take(now)
    whole = min(4, math.ceil(TICK_SECONDS * 1e3 / milliseconds))
    assert {len(each.tokens) for _, each in messages[2:]} == {whole}


def test_output_of_an_attempt_that_has_not_begun_leaves_at_once() -> None:
    gatherer: TokenGatherer[str] = TokenGatherer()
    for number in range(3):
        gatherer.add("unknown", output(number), 0.0)
    assert [each.tokens for _, each in gatherer.take(0.0)] == [(0,), (1,), (2,)]
    gatherer.end("unknown")
    assert not gatherer


def test_as_many_tokens_as_a_message_carries_leave_before_the_tick() -> None:
    gatherer: TokenGatherer[str] = TokenGatherer()
    gatherer.begin("a", 4)
    for token in (0, 1):
        gatherer.add("a", output(token), 0.0)
        gatherer.take(0.0)
    for token in (2, 3, 4):
        gatherer.add("a", output(token), 0.001)
    assert gatherer.take(0.001) == []
    assert gatherer.due == LATEST_SECONDS
    gatherer.add("a", output(5), 0.002)
    [(_, together)] = gatherer.take(0.002)
    assert list(together.tokens) == [2, 3, 4, 5]
