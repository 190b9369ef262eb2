"""Estimate a worker's step times from a few timed calls, by least squares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median

from fairlead.errors import InvalidRequest
from simulation.step_time import Coefficients, MeasuredProfile


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one call, in seconds: `first` to the first token, `each` per later token. It may run beside equal
    calls."""

    prompt_tokens: int
    output_tokens: int
    beside: int  # calls that run at the same time, including this one
    first: float
    each: float

    @property
    def context(self) -> float:
        """The mean number of tokens of context that a step reads to make a later token."""
        return self.prompt_tokens + self.output_tokens / 2


def fit(timings: Sequence[Timing], kv_tokens: int, token_budget: int) -> MeasuredProfile:
    """Fit a profile to measured calls: single calls of several prompt lengths, and several numbers of concurrent short
    calls.

    Prompts are computed in chunks of `token_budget` tokens. The times of later tokens give three coefficients: seconds
    per token of context, the fixed part of a step, and the part of one sequence with its token. First tokens give the
    cost of a prompt's token, including its attention: the time that remains after the fixed parts of its steps. The
    time of a call outside engine steps is part of no coefficient.

    Raises InvalidRequest when there are fewer than two prompt lengths or fewer than two numbers of concurrent calls.
    """
    alone = _medians([timing for timing in timings if timing.beside == 1], lambda timing: timing.prompt_tokens)
    shortest = min((timing.prompt_tokens for timing in timings), default=0)
    short = _medians([timing for timing in timings if timing.prompt_tokens == shortest], lambda timing: timing.beside)
    if min(len(alone), len(short)) < 2:
        raise InvalidRequest(
            f"calibration needs 2 prompt lengths and 2 numbers of concurrent calls, got {len(alone)} and {len(short)}"
        )
    context = max(linear_regression([call.context for call in alone], [call.each for call in alone]).slope, 0.0)
    line = linear_regression([call.beside for call in short], [call.each for call in short])
    step = max(line.intercept, 0.0)
    decode = max(line.slope - context * short[0].context, 0.0)  # a sequence and its one token
    token = max(_prompt_token(alone, step + decode, context, token_budget), 0.0)
    coefficients = Coefficients(
        step=step, sequence=max(decode - token, 0.0), weights=0.0, token=token, context=context, pair=0.0
    )
    return MeasuredProfile(coefficients=coefficients, kv_tokens=kv_tokens)


def _prompt_token(calls: Sequence[Timing], step: float, context: float, budget: int) -> float:
    """Return the seconds per prompt token, without the first token of each chunk: `step` includes that one."""
    tokens, seconds = [], []
    for call in calls:
        stops = [*range(budget, call.prompt_tokens, budget), call.prompt_tokens]
        tokens.append(call.prompt_tokens - len(stops))
        seconds.append(call.first - len(stops) * step - context * sum(stops))
    return linear_regression(tokens, seconds).slope


def _medians(timings: Sequence[Timing], key: Callable[[Timing], int]) -> list[Timing]:
    """Replace the timings with equal keys by one timing that has their median times."""
    groups: dict[int, list[Timing]] = {}
    for timing in timings:
        groups.setdefault(key(timing), []).append(timing)
    return [
        Timing(
            group[0].prompt_tokens,
            group[0].output_tokens,
            group[0].beside,
            median(call.first for call in group),
            median(call.each for call in group),
        )
        for _, group in sorted(groups.items())
    ]
