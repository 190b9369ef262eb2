"""The length of a step in seconds: how much of a prompt fits into it, learned from the steps before.

A budget in tokens does not bound the time of a step, because a token of a prompt attends to all tokens before it: 2,048
tokens at the end of a prompt of 131,072 take seven times as long as at its beginning on an A100, and all that decodes
waits for them. A token at context c takes as long as 1 + c / C tokens without, where C is the context at which
attention takes as long as all the rest. A step lasts at most STRETCH times as long as one of `token_budget` tokens
without context, or `seconds` if that is less. Shorter steps would read long contexts more often than they save.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from local_worker.core.batch import Slice

STRETCH = 2
KEPT = 0.995  # weight of a step's time relative to that of the step after it
LEAST_STEPS = 32  # number of steps from which the pace is learned before it is used
LEAST_CONTEXT = 512.0  # C is never taken for less: a few odd steps must not stop prompts
DECADE = 1e6  # variance of what is not known yet, in the units of StepLoad


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
    """The time of steps, as a linear function of their load: least squares that forget (recursive, lambda = KEPT)."""

    def __init__(self, token_budget: int, seconds: float | None = None) -> None:
        self._token_budget = token_budget
        self._seconds = seconds
        self._steps = 0
        size = len(StepLoad._fields)
        self._factors = [0.0] * size  # seconds per unit of each field of StepLoad
        self._variance = [[DECADE * (row == column) for column in range(size)] for row in range(size)]
        self._per_context = 0.0  # 1 / C

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learn from a step of `load` that took `seconds`."""
        gain = [sum(map(float.__mul__, row, load)) for row in self._variance]
        scale = KEPT + sum(map(float.__mul__, gain, load))
        error = seconds - sum(map(float.__mul__, self._factors, load))
        self._factors = [factor + error * part / scale for factor, part in zip(self._factors, gain, strict=True)]
        self._variance = [
            [(value - part * other / scale) / KEPT for value, other in zip(row, gain, strict=True)]
            for row, part in zip(self._variance, gain, strict=True)
        ]
        self._steps += 1
        per_token, per_pair = self._factors[1] / 1e3, self._factors[3] / 1e6
        if self._steps >= LEAST_STEPS and per_token > 0:
            self._per_context = min(1 / LEAST_CONTEXT, max(0.0, per_pair / per_token))

    @property
    def budget(self) -> float:
        """The number of tokens without context that a step can compute."""
        per_step, per_token = self._factors[0], self._factors[1] / 1e3
        if self._seconds is None or self._steps < LEAST_STEPS or per_token <= 0:
            return self._token_budget
        return min(self._token_budget, max(1.0, (self._seconds - per_step) / per_token / STRETCH))

    def most_tokens(self, start: int, budget: float) -> int:
        """Return how many tokens from the position `start` on count as at most `budget` tokens without context."""
        if budget <= 0:
            return 0
        if not self._per_context:
            return int(budget)
        first = 1 + start * self._per_context
        stretched = 2 * STRETCH * budget * self._per_context
        return int(min(budget, (math.sqrt(first**2 + stretched) - first) / self._per_context))

    def counted(self, start: int, tokens: int) -> float:
        """Return as how many tokens without context `tokens` from the position `start` on count."""
        return tokens * max(1.0, (1 + (start + tokens / 2) * self._per_context) / STRETCH)
