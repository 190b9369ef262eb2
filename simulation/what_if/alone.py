"""The isolated baseline: the times that each client would have had alone with its share of the pool.

Each client's calls are simulated without those of others on the same workers. Each step takes 1/share of its normal
time: twice as long with half of the pool. The share is the one that is open to the client at that time
(FairShares.shares): the capacity that the others leave, and at least an equal part.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from simulation.cluster import SimulatedCluster
from simulation.run_log import CountingRunLog, RunLog
from simulation.simulation_job import Ended
from simulation.spec import ClusterSpec
from simulation.trace_replay import TraceReplay
from simulation.trace_rows import TraceRow
from simulation.what_if.fair_shares import FairShares

NO_REPORTS = 1e9  # seconds between load reports: with one client no decision depends on them


@dataclass(frozen=True, slots=True)
class LoneTimes:
    """The times of one call, in seconds from its arrival."""

    first_token: float
    latency: float


def times_alone(
    spec: ClusterSpec, rows: Sequence[TraceRow], shares: FairShares, ended: Ended | None = None
) -> dict[int, LoneTimes]:
    """Return the times of each call that completes when its client is alone with its share, by call number."""
    numbers: dict[str, list[int]] = {}
    for number, ask in shares.asks.items():
        numbers.setdefault(ask.client, []).append(number)
    times: dict[int, LoneTimes] = {}
    for client, own in numbers.items():
        start = min(shares.asks[number].second for number in own)
        alone = alone_with({number: rows[number - 1] for number in own}, start)
        times |= _times(spec, alone, shares.shares(client, start), own, CountingRunLog(ended) if ended else RunLog())
    return times


def alone_with(rows: Mapping[int, TraceRow], start: float) -> list[TraceRow]:
    """Make a separate trace, beginning at `start`, of some rows given by number; dependencies on other rows are
    dropped."""
    positions = {number: position for position, number in enumerate(rows)}
    return [
        replace(
            row.at(row.arrival - start),
            after=tuple(positions[before + 1] for before in row.after if before + 1 in positions),
        )
        for row in rows.values()
    ]


def _times(
    spec: ClusterSpec,
    rows: Sequence[TraceRow],
    shares: Sequence[tuple[float, float]],
    numbers: Sequence[int],
    into: RunLog,
) -> dict[int, LoneTimes]:
    """Return the times of one client's calls by their numbers in the whole trace."""
    lone = replace(spec, stall_timeout=math.inf, report_seconds=NO_REPORTS)
    cluster = SimulatedCluster(lone, TraceReplay(rows), into)
    for second, share in shares:
        cluster.clock.at(second, partial(_slow_down, cluster, 1 / share))
    return {
        numbers[call.number - 1]: LoneTimes(call.first_token_latency, call.latency)
        for call in cluster.run().calls
        if call.completed
    }


def _slow_down(cluster: SimulatedCluster, factor: float) -> None:
    for worker in cluster.workers.values():
        worker.slowdown = factor
