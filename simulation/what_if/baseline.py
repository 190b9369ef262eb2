"""The reference for a run: each client's fair share, and the times that it would have had alone with that share."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from serving.statistics import jain_index
from simulation.run import CallResult, SimulationRun
from simulation.simulation_job import Ended
from simulation.spec import ClusterSpec
from simulation.traces import TraceWorkload
from simulation.what_if.alone import LoneTimes, times_alone
from simulation.what_if.capacity import capacity_of
from simulation.what_if.fair_shares import FairShares, asks_of, window_of

POINTS = 20  # points in time at which service is compared


@dataclass(frozen=True, slots=True)
class Baseline:
    """The reference for every configuration of a pool: it depends only on the trace and the pool's capacity."""

    shares: FairShares
    alone: Mapping[int, LoneTimes]  # by call number

    def within(self, records: Iterable[CallResult]) -> list[CallResult]:
        """Return the calls that arrived while their clients asked for at most their fair share."""
        return [record for record in records if self.shares.is_within(record.number)]

    def above(self, records: Iterable[CallResult]) -> list[CallResult]:
        """Return the calls that arrived while their clients asked for more than their fair share."""
        shares = self.shares
        return [record for record in records if record.number in shares.asks and not shares.is_within(record.number)]

    def slowdown(self, record: CallResult) -> float:
        """Return the latency relative to that alone; infinite when the call completes alone but did not in this run."""
        if not record.completed:
            return math.inf
        return (record.ended - record.arrival) / self.alone[record.number].latency

    def jain(self, run: SimulationRun) -> float:
        """Return Jain's index over the clients of service received relative to the fair share's, as a mean of POINTS
        times.

        A client that asks for little and receives it counts the same as a client that asks for much and receives its
        share.
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
    """A simulation job: the baseline of a pool under a trace."""

    spec: ClusterSpec
    trace: TraceWorkload

    def run(self, ended: Ended | None = None) -> Baseline:
        """Return the baseline; see SimulationJob. Raises InvalidRequest when a worker accepts none of the requests."""
        rows = self.trace.rows()
        capacity, asks = capacity_of(self.spec, rows), asks_of(rows, self.spec.worker)
        shares = FairShares(asks, capacity, window_of(asks.values()))
        return Baseline(shares, times_alone(self.spec, rows, shares, ended))
