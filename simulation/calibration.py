"""A worker's step times from a few timed calls: least squares over what each kind of call depends on."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression, median

from simulation.step_time import Coefficients, Measured


@dataclass(frozen=True, slots=True)
class Timing:
    """One call, alone or beside others like it: `first` and `each` are seconds to the first token and per later one."""

    prompt_tokens: int
    beside: int  # calls at the same time, this one included
    first: float
    each: float


def fit(timings: Sequence[Timing], kv_tokens: int) -> Measured:
    """Needs calls of several prompt lengths alone, and several numbers of short calls at the same time.

    The first token gives the cost of a prompt's tokens, attention among them included; later tokens give the fixed part
    of a step, what each sequence adds and what each token of context adds. Raises StatisticsError with too few.
    """
    alone = [timing for timing in timings if timing.beside == 1]
    shortest = min(timing.prompt_tokens for timing in timings)
    short = [timing for timing in timings if timing.prompt_tokens == shortest]
    lengths = sorted({timing.prompt_tokens for timing in alone})
    firsts = [median(t.first for t in alone if t.prompt_tokens == length) for length in lengths]
    token = max(linear_regression(lengths, firsts).slope, 0.0)
    eaches = [median(t.each for t in alone if t.prompt_tokens == length) for length in lengths]
    context = max(linear_regression(lengths, eaches).slope, 0.0)
    counts = sorted({timing.beside for timing in short})
    steps = [median(t.each for t in short if t.beside == count) for count in counts]
    line = linear_regression(counts, steps)
    sequence = max(line.slope - token - context * shortest, 0.0)
    step = max(line.intercept, 0.0)
    coefficients = Coefficients(step=step, sequence=sequence, weights=0.0, token=token, context=context, pair=0.0)
    return Measured(coefficients=coefficients, kv_tokens=kv_tokens)
