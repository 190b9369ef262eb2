"""A simulated run, reduced to what figures are read from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fairlead.outcomes import Outcome
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.run_log import CountingRunLog
from simulation.simulation_job import Ended
from simulation.spec import ClusterSpec
from simulation.workload import Workload


class WorkloadSpec(Protocol):
    """A description of a workload: hashable and picklable."""

    def __hash__(self) -> int:
        """Equal descriptions make equal workloads."""

    def make(self) -> Workload:
        """The workload, always the same."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call without its tokens; times in seconds, None where it never got there."""

    number: int  # of the call, unique in a run
    client: str
    app: str
    interaction: str
    stage: int
    last: bool
    arrival: float
    admitted: float | None
    first: float | None
    ended: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    outcome: Outcome

    @property
    def completed(self) -> bool:
        """Whether it was answered in full."""
        return self.outcome is Outcome.COMPLETED


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """What a scenario gave. `actual` is each client's service at the end of each second in which it changed, as the
    workers' ledgers count it: tokens that no cache held, and output."""

    records: tuple[CallResult, ...]
    actual: Mapping[str, Mapping[int, float]]
    seconds: float
    worst_gap: int
    bound: int | None

    @property
    def clients(self) -> list[str]:
        """Sorted."""
        return sorted({record.client for record in self.records})

    def of(self, client: str) -> list[CallResult]:
        """The client's calls in order of arrival."""
        return [record for record in self.records if record.client == client]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A job: a workload on a cluster."""

    spec: ClusterSpec
    workload: WorkloadSpec

    def run(self, ended: Ended | None = None) -> SimulationRun:
        """Simulate it; see Job."""
        run_log = SimulatedCluster(self.spec, self.workload.make(), CountingRunLog(ended) if ended else None).run()
        records = tuple(_record(call) for call in run_log.calls)
        return SimulationRun(records, run_log.service, run_log.seconds, run_log.worst_gap, run_log.bound)


def _record(call: SimulatedCall) -> CallResult:
    assert call.outcome is not None
    assert call.ended_at is not None
    return CallResult(
        number=call.number,
        client=call.client,
        app=call.app,
        interaction=call.interaction,
        stage=call.stage,
        last=call.last,
        arrival=call.arrival,
        admitted=call.admitted_at,
        first=call.first_token_at,
        ended=call.ended_at,
        input_tokens=call.prompt_tokens,
        cached_tokens=call.cached_tokens,
        output_tokens=call.received,
        outcome=call.outcome,
    )
