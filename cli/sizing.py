"""The number of workers that an objective needs, and the resulting cost of a million tokens."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cli.comparison import Comparison
from cli.objective import MOST_WORKERS, Objective, fewest
from simulation.run import Scenario
from simulation.what_if.summary import Summary

HOUR = 3600.0
MILLION = 1e6


@dataclass(slots=True)
class Sizing:
    """Pools of different sizes under one configuration.

    All sizes are judged by the same calls: those within their client's fair share of the pool that the options
    describe, because a larger pool need not serve a flood sooner. `enough` is the number of workers that `sentences`
    found.
    """

    comparison: Comparison
    scenario: Scenario
    tried: dict[int, Summary]
    enough: int | None = None

    def summary(self, workers: int) -> Summary:
        """Return the summary for this number of workers, simulated at most once."""
        if workers not in self.tried:
            spec = replace(self.scenario.spec, workers=workers)
            self.tried[workers] = self.comparison.judge(_workers(workers), replace(self.scenario, spec=spec))
        return self.tried[workers]

    def sentences(self, objective: Objective) -> Iterator[str]:
        """Yield sentences with the sufficient number of workers, and the result with one worker less."""
        asked = f"{objective.measure} of at most {objective.seconds:g} s"
        given = self.scenario.spec.workers
        enough = self.enough = fewest(lambda workers: objective.is_met(self.summary(workers).judged), given)
        if enough is None:
            yield f"no pool of up to {MOST_WORKERS} workers meets {asked}"
            return
        figure = objective.figure(self.summary(enough).judged)
        yield f"{_workers(enough)} {'meet' if enough > 1 else 'meets'} {asked}: {figure:,.3f} s"
        if enough > 1:
            yield f"with {_workers(enough - 1)} it is {objective.figure(self.summary(enough - 1).judged):,.3f} s"


def cost(summary: Summary, workers: int, price: float) -> str:
    """Return a sentence with the cost of a million input and output tokens at `price` per GPU hour."""
    per_token = price * workers / HOUR / summary.tokens
    return (
        f"a million tokens, input and output, cost {per_token * MILLION:,.3f} on {_workers(workers)} at {price:g} per "
        f"GPU and hour, if paid for all of the {summary.seconds:,.0f} s that the trace takes"
    )


def _workers(count: int) -> str:
    return f"{count} worker" + "s" * (count > 1)
