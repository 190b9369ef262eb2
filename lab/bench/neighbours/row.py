"""The figures of one neighbour under one policy, each beside the same alone.

The quiet user's times alone are the least of all policies' phases alone: a policy decides nothing for a user alone, so
what makes one phase slower than another is other work on the machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lab.bench.flood.figures import MOST_OVER_ALONE
from lab.bench.flood.phase import Phase
from lab.bench.neighbours.trial import QUIET, Observation
from serving.statistics import percentile

STEPS_OVER_ALONE = 2
LEAST_OF_FCFS = 0.97
SATURATED = 0.9  # part of the time that the engine computes; an engine with less to do computes what it is asked for
BASELINE = "fcfs"


@dataclass(frozen=True, slots=True)
class Times:
    """The median and the 99th percentile of the quiet user's times in seconds."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one neighbour under one policy; throughputs are in cost units per second."""

    beside: str
    policy: str
    asked: int
    failed: int
    first: Times
    first_alone: Times
    between: Times | None  # between two tokens of an answer; None: no answer had two
    between_alone: Times
    longest_step: float  # of the engine, in seconds
    neighbours: float
    total: float  # also of what the cache served
    of_baseline: float | None  # `total` over that of FCFS; None: FCFS did not run, or did not saturate the engine
    hit_rate: float

    @property
    def allowed(self) -> float:
        """The longest p99 to the first token, in seconds."""
        return MOST_OVER_ALONE * self.first_alone.p99 + STEPS_OVER_ALONE * self.longest_step

    @property
    def misses(self) -> list[str]:
        """The targets that the row misses."""
        missed = []
        if self.first.p99 > self.allowed or self.failed:
            missed.append("first token")
        if self.of_baseline is not None and self.of_baseline < LEAST_OF_FCFS:
            missed.append("throughput")
        return missed


def rows(observations: Sequence[Observation]) -> list[Row]:
    """Return the rows of all policies, those of one neighbour beside each other."""
    alone = [each.phase for each in observations if not each.beside]
    beside = [each for each in observations if each.beside]
    baseline = {
        each.beside: _total(each)
        for each in beside
        if each.policy == BASELINE and each.work.busy >= SATURATED * each.phase.seconds
    }
    order = list(dict.fromkeys(each.beside for each in beside))
    return sorted((_row(each, alone, baseline) for each in beside), key=lambda row: order.index(row.beside))


def _row(seen: Observation, alone: Sequence[Phase], baseline: Mapping[str, float]) -> Row:
    asked = seen.phase.asked_by(QUIET)
    theirs = sum(cost for client, cost in seen.work.computed.items() if not _is_quiet(client))
    most = baseline.get(seen.beside)
    between_alone = [each for each in map(_between, alone) if each is not None]
    if not between_alone:
        raise ValueError(f"no question was answered, even alone: {[phase.calls for phase in alone]}")
    return Row(
        beside=seen.beside,
        policy=seen.policy,
        asked=len(asked),
        failed=sum(bool(call.text) for call in asked),
        first=_first(seen.phase),
        first_alone=_least(map(_first, alone)),
        between=_between(seen.phase),
        between_alone=_least(between_alone),
        longest_step=seen.work.longest_step,
        neighbours=theirs / seen.phase.seconds,
        total=_total(seen),
        of_baseline=_total(seen) / most if most else None,
        hit_rate=seen.work.cached / max(1, seen.work.prompts),
    )


def _least(times: Iterable[Times]) -> Times:
    return min(times, key=lambda each: each.p99)


def _is_quiet(client: str) -> bool:
    return client.partition("/")[0] == QUIET


def _total(seen: Observation) -> float:
    return (sum(seen.work.computed.values()) + seen.work.cached) / seen.phase.seconds


def _first(phase: Phase) -> Times:
    """Return the times to the first token; a question without an answer counts with its wait until the end."""
    waits = [(call.tokens_at[0] if call.tokens_at else phase.ended) - call.sent for call in phase.asked_by(QUIET)]
    return Times(percentile(waits, 50), percentile(waits, 99))


def _between(phase: Phase) -> Times | None:
    gaps = [later - earlier for call in phase.asked_by(QUIET) for earlier, later in pairwise(call.tokens_at)]
    return Times(percentile(gaps, 50), percentile(gaps, 99)) if gaps else None
