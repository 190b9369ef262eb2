"""Gathering of tokens on their way to gateways: a message costs a gateway about 100 us, whatever it carries.

An attempt's first token leaves at once, and what is held of an attempt leaves with its end. All other tokens leave in
ticks, those of all attempts together. A step is a tick if it ends TICK_SECONDS or more after the last one, or if an
attempt then has as many tokens as its caller wants in one message. So tokens leave with a step, and steps that are
slower than ticks are not delayed. If a step takes longer, what is held leaves LATEST_SECONDS after the last tick.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from local_worker.core.output import Output, joined

TICK_SECONDS = 0.04
# Two ticks: of steps that take the same time, one always ends between one and two ticks after the last. After one tick
# alone the timer would often come right before the step that completes a message.
LATEST_SECONDS = 2 * TICK_SECONDS

Attempt = TypeVar("Attempt", bound=Hashable)


@dataclass(slots=True)
class HeldOutput:
    """The output of one attempt that has not left; `wanted` tokens are enough for its next message."""

    tokens_per_message: int
    wanted: int = 1  # the first token leaves alone
    tokens: int = 0
    outputs: list[Output] = field(default_factory=list)

    def take(self) -> Output:
        """Remove and return everything that is held, at least one output."""
        output = joined(self.outputs)
        self.outputs, self.tokens, self.wanted = [], 0, self.tokens_per_message
        return output


class TokenGatherer(Generic[Attempt]):
    """Holds the output of all attempts of a worker until it leaves. `now` is in seconds and never decreases."""

    def __init__(self) -> None:
        self._attempts: dict[Attempt, HeldOutput] = {}
        self._waiting: dict[Attempt, HeldOutput] = {}  # the attempts that hold output for the next tick
        self._urgent: list[tuple[Attempt, Output]] = []  # leaves before that
        self._ticked_at = -math.inf
        self.due: float | None = None  # time of the next tick, unless a step is one before; None: nothing is held

    def __len__(self) -> int:
        """Return the number of attempts that have begun and not ended."""
        return len(self._attempts)

    def begin(self, attempt: Attempt, tokens_per_message: int) -> None:
        """Expect output of `attempt`; do nothing if it has begun. With 1 token per message none of its is held."""
        self._attempts.setdefault(attempt, HeldOutput(tokens_per_message))

    def add(self, attempt: Attempt, output: Output, now: float) -> None:
        """Hold the next output of an attempt; that of one that has not begun leaves at once."""
        held = self._attempts.get(attempt) or HeldOutput(tokens_per_message=1)
        held.outputs.append(output)
        held.tokens += len(output.tokens)
        if held.wanted == 1:
            self._urgent.append((attempt, held.take()))
            return
        self._waiting[attempt] = held
        if held.tokens >= held.wanted:
            self.due = now
        elif self.due is None:
            self.due = max(now, self._ticked_at + LATEST_SECONDS)

    def end(self, attempt: Attempt) -> None:
        """Release what is held of an attempt, and forget it; do nothing if it has not begun."""
        self._attempts.pop(attempt, None)
        held = self._waiting.pop(attempt, None)
        if held is not None:
            self._urgent.append((attempt, held.take()))
            if not self._waiting:
                self.due = None

    def take(self, now: float) -> list[tuple[Attempt, Output]]:
        """Remove and return the output that leaves now, in the order in which each attempt generated it."""
        leaving, self._urgent = self._urgent, []
        if self.due is not None and now >= min(self.due, self._ticked_at + TICK_SECONDS):
            leaving += [(attempt, held.take()) for attempt, held in self._waiting.items()]
            self._waiting, self.due, self._ticked_at = {}, None, now
        return leaving

    def check_invariants(self) -> None:
        """Raise AssertionError with detail if output is held for an attempt that has ended, or without a tick."""
        for attempt, held in self._waiting.items():
            assert self._attempts.get(attempt) is held, f"output is held of {attempt}, which has ended"
            assert held.tokens == sum(len(output.tokens) for output in held.outputs), f"{attempt}: {held}"
        assert (self.due is None) == (not self._waiting), f"{len(self._waiting)} attempts wait for a tick at {self.due}"
