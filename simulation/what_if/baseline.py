"""What a run is held against: everybody's fair share, and what everybody would have had alone with it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from serving.metrics import jain_index
from simulation.run import CallResult, SimulationRun
from simulation.simulation_job import Ended
from simulation.spec import ClusterSpec
from simulation.traces import TraceWorkload
from simulation.what_if.alone import LoneTimes, times_alone
from simulation.what_if.capacity import capacity_of
from simulation.what_if.fair_shares import FairShares, asks_of, window_of

POINTS = 20  # of time at which service is compared


@dataclass(frozen=True, slots=True)
class Baseline:
    """The same for every configuration of a pool: it depends on the trace and the pool's capacity alone."""

    shares: FairShares
    alone: Mapping[int, LoneTimes]  # by call number

    def within(self, records: Iterable[CallResult]) -> list[CallResult]:
        """The calls that came while their clients asked for no more than their fair share."""
        return [record for record in records if self.shares.is_within(record.number)]

    def above(self, records: Iterable[CallResult]) -> list[CallResult]:
        """The calls that came while their clients asked for more."""
        shares = self.shares
        return [record for record in records if record.number in shares.asks and not shares.is_within(record.number)]

    def slowdown(self, record: CallResult) -> float:
        """How many times as long the call took as alone; infinite when it was answered alone, and here was not."""
        if not record.completed:
            return math.inf
        return (record.ended - record.arrival) / self.alone[record.number].latency

    def jain(self, run: SimulationRun) -> float:
        """Jain's index of what each client has received of what its fair share has given it, the mean at POINTS times.

        Whoever asks for little and gets it counts like whoever asks for much and gets its share of it.
        """
        records = [record for record in run.records if record.number in self.shares.asks and record.completed]
        indices = []
        for second, entitled in self.shares.entitlements(POINTS):
            received = dict.fromkeys(entitled, 0.0)
            for record in records:
                if record.first is not None and record.first < second:
                    ask = self.shares.asks[record.number]
                    received[record.client] += ask.received(record.first, record.ended, second)
            indices.append(jain_index([received[client] / share for client, share in entitled.items()]))
        return fmean(indices)


@dataclass(frozen=True, slots=True)
class Isolation:
    """A job: the baseline of a pool under a trace."""

    spec: ClusterSpec
    trace: TraceWorkload

    def run(self, ended: Ended | None = None) -> Baseline:
        """See Job; raises InvalidRequest when such a worker takes none of the requests."""
        rows = self.trace.rows()
        capacity, asks = capacity_of(self.spec, rows), asks_of(rows, self.spec.worker)
        shares = FairShares(asks, capacity, window_of(asks.values()))
        return Baseline(shares, times_alone(self.spec, rows, shares, ended))
