"""The VTC authors' published runs: their requests as workloads, and their measured times."""

import random
from dataclasses import dataclass
from pathlib import Path

from fairlead.outcomes import Outcome
from lab.loops import OpenLoop
from lab.reproduction.reference import Row, read_run
from simulation.run import CallResult, SimulationRun
from simulation.simulation_job import Ended

ASKED = "needs the folder of the measurements: --reference or FAIRLEAD_REFERENCE"


@dataclass(frozen=True, slots=True)
class Requests:
    """A workload with the arrivals and lengths of run `name` in `folder`; a `seed` delays each by up to a second."""

    folder: Path
    name: str
    seed: int | None = None

    def make(self) -> OpenLoop:
        """See WorkloadSpec."""
        calls = read_run(self.folder, self.name).calls()
        if self.seed is not None:
            rng = random.Random(self.seed)
            for call in calls:
                call.arrival += rng.random()
            calls.sort(key=lambda call: (call.arrival, call.number))
        return OpenLoop(calls)


@dataclass(frozen=True, slots=True)
class Measured:
    """A simulation job that returns the measurement in the form of a simulated run."""

    folder: Path
    name: str

    def run(self, ended: Ended | None = None) -> SimulationRun:
        """Read the measured run, without any simulation."""
        rows = read_run(self.folder, self.name).rows
        records = tuple(_record(number, row) for number, row in enumerate(rows, start=1))
        return SimulationRun(records, {}, max(record.ended for record in records), 0, None)


def _record(number: int, row: Row) -> CallResult:
    """Return the row in the form of our records; a refused request has no first token."""
    return CallResult(
        number=number,
        client=row.client,
        app="",
        interaction="",
        stage=0,
        last=True,
        arrival=row.arrival,
        admitted=None,
        first=None if row.latency is None else row.arrival + row.first_token,
        ended=row.arrival + (row.latency or 0.0),
        input_tokens=row.input_tokens,
        cached_tokens=0,
        output_tokens=row.output_tokens,
        outcome=Outcome.REJECTED_CLIENT_LIMIT if row.latency is None else Outcome.COMPLETED,
    )
