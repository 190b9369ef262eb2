"""The row of one configuration in the comparison for operators."""

from dataclasses import dataclass

from serving.cost import MICRO
from simulation.measures import hit_rate, service_rate, tokens_per_second
from simulation.run import CallResult, SimulationRun
from simulation.what_if.baseline import Baseline
from simulation.what_if.client_slowdown import client_slowdowns, mean_slowdown
from simulation.what_if.waits import NAMES, Waits, waits_of

GROUPS = ("within share", "above share")
HEADER = (
    "configuration",
    *(f"{group}: {name}" for group in GROUPS for name in ("calls", *NAMES)),
    "answered",
    "refused",
    "least answered",
    "tokens/s",
    "service/s",
    "hit rate",
    "Jain index of entitled service",
    "gap",
    "bound",
    "end s",
    "slowdown of clients",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """The results of one configuration on a workload.

    `within` and `above` are the calls that arrived while their client asked for at most, or for more than, its fair
    share of the pool. Gap and bound are in cost units of one worker; the bound is None where the policy guarantees
    none.
    """

    name: str
    within: Waits
    above: Waits
    answered: int
    refused: int
    unanswered: tuple[str, ...]  # clients without an answered call
    least_answered: float  # smallest share of answered calls of any client
    tokens: float
    service: float
    hits: float
    jain: float
    gap: float
    bound: float | None
    seconds: float
    of_clients: float  # the mean slowdown of the clients, by which configurations are ranked; see client_slowdown

    @property
    def judged(self) -> Waits:
        """The calls whose times are shown first: those within their client's fair share.

        If there are none, all calls are above the share and these are shown. The longest wait is no measure: under a
        fair policy it is that of the client with the largest demand.
        """
        return self.within if self.within.calls else self.above

    def cells(self) -> tuple[object, ...]:
        """Return the cells in the order of HEADER."""
        return (
            *(self.name, self.within.calls, *self.within.cells(), self.above.calls, *self.above.cells()),
            *(self.answered, self.refused, self.least_answered, self.tokens, self.service, self.hits),
            *(self.jain, self.gap, self.bound, self.seconds, self.of_clients),
        )


def summarize(name: str, run: SimulationRun, baseline: Baseline) -> Summary:
    """Summarize a run over all clients, including those without any answer."""
    by_client: dict[str, list[CallResult]] = {}
    for record in run.records:
        by_client.setdefault(record.client, []).append(record)
    done = sum(record.completed for record in run.records)
    shares = {client: sum(r.completed for r in records) / len(records) for client, records in by_client.items()}
    return Summary(
        name=name,
        within=waits_of(baseline.within(run.records), baseline),
        above=waits_of(baseline.above(run.records), baseline),
        answered=done,
        refused=len(run.records) - done,
        unanswered=tuple(sorted(client for client, share in shares.items() if not share)),
        least_answered=min(shares.values()),
        tokens=tokens_per_second(run) if done else 0.0,
        service=service_rate(run) if done else 0.0,
        hits=hit_rate(run),
        jain=baseline.jain(run),
        gap=run.worst_gap / MICRO,
        bound=None if run.bound is None else run.bound / MICRO,
        seconds=run.seconds,
        of_clients=mean_slowdown(client_slowdowns(run.records, baseline)),
    )
