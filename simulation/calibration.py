"""A worker's step times from a few timed calls: least squares over what each kind of call depends on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median

from fairlead.errors import InvalidRequest
from simulation.step_time import Coefficients, MeasuredProfile


@dataclass(frozen=True, slots=True)
class Timing:
    """One call, alone or beside others like it: `first` and `each` are seconds to the first token and per later one."""

    prompt_tokens: int
    output_tokens: int
    beside: int  # calls at the same time, this one included
    first: float
    each: float

    @property
    def context(self) -> float:
        """What a step that makes a later token reads, on average."""
        return self.prompt_tokens + self.output_tokens / 2


def fit(timings: Sequence[Timing], kv_tokens: int, token_budget: int) -> MeasuredProfile:
    """Needs calls of several prompt lengths alone, and several numbers of short calls at the same time; raises
    InvalidRequest with fewer than two of either. Prompts are computed in chunks of `token_budget`.

    Later tokens give what each token of context adds, the fixed part of a step and what each sequence and its token
    add. First tokens give the cost of a prompt's tokens, attention among them included: of what its steps took, that is
    what is left. What a call takes beside its steps is in no coefficient.
    """
    alone = _medians([timing for timing in timings if timing.beside == 1], lambda timing: timing.prompt_tokens)
    shortest = min((timing.prompt_tokens for timing in timings), default=0)
    short = _medians([timing for timing in timings if timing.prompt_tokens == shortest], lambda timing: timing.beside)
    if min(len(alone), len(short)) < 2:
        raise InvalidRequest(
            f"two prompt lengths and two numbers of calls at a time are needed, got {len(alone)} and {len(short)}"
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
    """Seconds per prompt token beyond the first of each chunk, which `step` includes."""
    tokens, seconds = [], []
    for call in calls:
        stops = [*range(budget, call.prompt_tokens, budget), call.prompt_tokens]
        tokens.append(call.prompt_tokens - len(stops))
        seconds.append(call.first - len(stops) * step - context * sum(stops))
    return linear_regression(tokens, seconds).slope


def _medians(timings: Sequence[Timing], key: Callable[[Timing], int]) -> list[Timing]:
    """One call for all that are alike."""
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
