"""The figures of a trial, which are all measured at the client, in the same way for every system.

A question may wait until the step that runs has ended, and until a running call leaves room for it. How long that
takes is seen from outside: a step is the time between two parts of one output, and an admission the time between the
ends of two calls. The longest hundredth of each is left out, as with waiting times.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from lab.bench.flood.call import ObservedCall
from lab.bench.flood.phase import Phase
from lab.bench.flood.workload import QUIET, USERS
from serving.statistics import percentile

MOST_OVER_ALONE = 1.2


@dataclass(frozen=True, slots=True)
class Waits:
    """Times to the first token in seconds. A question without an answer counts with its wait until the end."""

    count: int
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one system; times are in seconds, and tokens are those of prompts and outputs."""

    system: str
    alone: Waits
    flooded: Waits
    step: float
    admission: float
    interactions: int
    shares: dict[str, float]  # of the tokens that were computed
    tokens_per_second: float  # prompts with their cached part, and outputs
    output_per_second: float
    hit_rate: float
    calls_per_minute: float
    refused: int  # for their rate

    @property
    def target(self) -> float:
        """The longest p99 of the quiet user that the flood may cause."""
        return MOST_OVER_ALONE * self.alone.p99 + self.step + self.admission

    @property
    def keeps_target(self) -> bool:
        """Whether the quiet user's p99 is at most the target."""
        return self.flooded.p99 <= self.target


def figures(system: str, alone: Phase, flooded: Phase) -> Figures:
    """Return the figures of a trial; raises ValueError if a phase has no questions or the flood no answers."""
    answered = flooded.answered()
    computed = {user: sum(_computed(call) for call in answered if call.user == user) for user in USERS}
    prompts, cached = sum(call.prompt_tokens for call in answered), sum(call.cached_tokens for call in answered)
    outputs = sum(call.output_tokens for call in answered)
    return Figures(
        system=system,
        alone=_waits(alone),
        flooded=_waits(flooded),
        step=_p99(later - earlier for call in flooded.calls for earlier, later in pairwise(call.tokens_at)),
        admission=_p99(later - earlier for earlier, later in pairwise(sorted(call.tokens_at[-1] for call in answered))),
        interactions=sum(call.ends_interaction for call in answered),
        shares={user: computed[user] / sum(computed.values()) for user in USERS},
        tokens_per_second=(prompts + outputs) / flooded.seconds,
        output_per_second=outputs / flooded.seconds,
        calls_per_minute=60 * len(answered) / flooded.seconds,
        hit_rate=cached / prompts,
        refused=sum(call.refused for call in flooded.calls),
    )


def _waits(phase: Phase) -> Waits:
    """Return the quiet user's waits of a phase."""
    waits = [(call.tokens_at[0] if call.tokens_at else phase.ended) - call.sent for call in phase.asked_by(QUIET)]
    return Waits(len(waits), percentile(waits, 50), percentile(waits, 99))


def _computed(call: ObservedCall) -> int:
    return call.prompt_tokens - call.cached_tokens + call.output_tokens


def _p99(values: Iterable[float]) -> float:
    return percentile(list(values), 99)
