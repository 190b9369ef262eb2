"""A simulated run, reduced to the data that figures use."""

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
    """A hashable and picklable description of a workload."""

    def __hash__(self) -> int:
        """Return equal values for equal descriptions, which make equal workloads."""

    def make(self) -> Workload:
        """Make the workload; each call makes an equal one."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of one call without its tokens. Times are in seconds; None means that the call did not get so far."""

    number: int  # unique in a run
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
        """Whether the call received its full answer."""
        return self.outcome is Outcome.COMPLETED


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """The result of a scenario: its calls and the service received.

    `actual` maps each client to its service at the end of each second in which it changed. The workers' ledgers count
    it: tokens that no cache held, and output tokens. `worst_gap` and `bound` are in micro-units of cost.
    """

    records: tuple[CallResult, ...]
    actual: Mapping[str, Mapping[int, float]]
    seconds: float
    worst_gap: int
    bound: int | None

    @property
    def clients(self) -> list[str]:
        """The names of all clients, sorted."""
        return sorted({record.client for record in self.records})

    def of(self, client: str) -> list[CallResult]:
        """Return the client's calls in order of arrival."""
        return [record for record in self.records if record.client == client]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulation job: a workload on a cluster."""

    spec: ClusterSpec
    workload: WorkloadSpec

    def run(self, ended: Ended | None = None) -> SimulationRun:
        """Simulate the scenario; see SimulationJob."""
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
