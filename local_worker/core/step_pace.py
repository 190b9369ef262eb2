"""The length of a step in seconds: how much of a prompt fits into it, and when the next one is planned.

Both are learned from the steps before.

A budget in tokens does not bound the time of a step, because a token of a prompt attends to all tokens before it: 2,048
tokens at the end of a prompt of 131,072 take seven times as long as at its beginning on an A100, and all that decodes
waits for them. A token at context c takes as long as 1 + c / C tokens without, where C is the context at which
attention takes as long as all the rest. A step lasts at most STRETCH times as long as one of `token_budget` tokens
without context, or `seconds` if that is less. Shorter steps would read long contexts more often than they save.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from local_worker.core.batch import Slice

STRETCH = 2
KEPT = 0.995  # weight of a step's time relative to that of the step after it
LEARNED_EVERY = 16  # steps: what one of many steps changes is not worth solving for
LEAST_STEPS = 32  # number of steps from which the pace is learned before it is used
LEAST_CONTEXT = 512.0  # C is never taken for less: a few odd steps must not stop prompts
MOST_ODD = 10.0  # a step that lasts longer than this times what was expected counts as that: the process was stopped
LEAST_EXPECTED = 0.001  # seconds
RIDGE = 1e-9  # keeps what no step has shown at 0
PLAN_SECONDS = 0.01  # that the host needs at most to plan a step, in most cases
MOST_DELAY = 0.9  # of a step's expected time
DELAY_GROWTH = 0.05  # of that part, after each step that had not ended
ENDED_SECONDS = 0.001  # a step that ends sooner after the launch of the next one had ended before it


class StepLoad(NamedTuple):
    """What the time of a step depends on."""

    step: float  # 1
    tokens: float  # thousands of computed tokens
    context: float  # millions of tokens in the pages of all requests
    pairs: float  # millions of pairs of a token of a prompt and one before it

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> "StepLoad":
        """Return the load of a step of `slices`."""
        tokens = context = pairs = 0
        for piece in slices:
            count = piece.stop - piece.start
            tokens += count
            context += piece.stop
            if count > 1:
                pairs += count * (piece.start + piece.stop) // 2
        return cls(1.0, tokens / 1e3, context / 1e6, pairs / 1e6)


class StepPace:
    """The time of steps, as a linear function of their load: least squares over steps of which the older weigh less.

    What no recent step has shown is forgotten: after hours without prompts a step gets the whole `token_budget` again.
    """

    def __init__(self, token_budget: int, seconds: float | None = None) -> None:
        self._token_budget = token_budget
        self._seconds = seconds
        self._steps = 0
        size = len(StepLoad._fields)
        self._factors = [0.0] * size  # seconds per unit of each field of StepLoad
        self._products = [[0.0] * size for _ in range(size)]  # sums of the products of two fields
        self._times = [0.0] * size  # sums of the products of a field and the time
        self._per_context = 0.0  # 1 / C

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learn from a step of `load` that took `seconds`."""
        if self._steps >= LEAST_STEPS:
            seconds = min(seconds, MOST_ODD * max(LEAST_EXPECTED, self.expected(load)))
        for place, mine in enumerate(load):
            row = self._products[place]
            for column, other in enumerate(load):
                row[column] = KEPT * row[column] + mine * other
            self._times[place] = KEPT * self._times[place] + mine * seconds
        self._steps += 1
        if self._steps % LEARNED_EVERY == 0:
            self._learn()

    def _learn(self) -> None:
        self._factors = _solved(self._products, self._times)
        per_token, per_pair = self._factors[1] / 1e3, self._factors[3] / 1e6
        if self._steps >= LEAST_STEPS and per_token > 0:
            self._per_context = min(1 / LEAST_CONTEXT, max(0.0, per_pair / per_token))

    def expected(self, load: StepLoad) -> float:
        """Return the seconds that a step of `load` will take, as far as that is learned; at first 0."""
        return max(0.0, sum(map(float.__mul__, self._factors, load))) if self._steps >= LEAST_STEPS else 0.0

    @property
    def budget(self) -> float:
        """The number of tokens without context that a step can compute."""
        per_step, per_token = self._factors[0], self._factors[1] / 1e3
        if self._seconds is None or self._steps < LEAST_STEPS or per_token <= 0:
            return self._token_budget
        return min(self._token_budget, max(1.0, (self._seconds - per_step) / per_token / STRETCH))

    def most_tokens(self, start: int, budget: float) -> int:
        """Return how many tokens from the position `start` on count as at most `budget` tokens without context."""
        first, stretched = 1 + start * self._per_context, 2 * STRETCH * max(0.0, budget)
        return int(min(budget, stretched / (math.sqrt(first**2 + stretched * self._per_context) + first)))

    def counted(self, start: int, tokens: int) -> float:
        """Return as how many tokens without context `tokens` from the position `start` on count."""
        return tokens * max(1.0, (1 + (start + tokens / 2) * self._per_context) / STRETCH)


def _solved(products: Sequence[Sequence[float]], times: Sequence[float]) -> list[float]:
    """Return the factors that fit best: Gaussian elimination of symmetric, positive sums."""
    size = len(times)
    rows = [[*row, time] for row, time in zip(products, times, strict=True)]
    for place in range(size):
        rows[place][place] += RIDGE
    for place, pivot in enumerate(rows):
        for row in rows[place + 1 :]:
            part = row[place] / pivot[place]
            for column in range(place, size + 1):
                row[column] -= part * pivot[column]
    factors = [0.0] * size
    for place in reversed(range(size)):
        known = sum(rows[place][column] * factors[column] for column in range(place + 1, size))
        factors[place] = (rows[place][size] - known) / rows[place][place]
    return factors


class PlanDelay:
    """The part of a step's expected time that passes before the next step is planned, where the engine runs ahead.

    Who comes before that is in the next step. But the end is only expected, and a device that waits for the host loses
    more than a newcomer gains. Worse, such a step seems to last until the host came, so that a false expectation would
    confirm itself. So the part of the expected time that the host lets pass grows slowly, falls to 0 as soon as a step
    had ended before the next one was launched, and nothing is learned from that step.
    """

    def __init__(self) -> None:
        self._part = 0.0
        self._is_delayed = False

    def seconds(self, expected: float) -> float:
        """Return how long after the begin of a step, which is expected to last so many seconds, the next one is
        planned; at most 0: at once."""
        delay = self._part * expected - PLAN_SECONDS
        self._is_delayed = delay > 0
        return delay

    def ended(self, waited: float) -> bool:
        """Record that the host waited so many seconds for the end of the step after it had launched the next one;
        return whether the step's time is known: the host did not miss its end."""
        is_missed = self._is_delayed and waited < ENDED_SECONDS
        self._part = 0.0 if is_missed else min(MOST_DELAY, self._part + DELAY_GROWTH)
        self._is_delayed = False
        return not is_missed
