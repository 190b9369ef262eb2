"""How much longer the calls of each client take than if the client were alone with its fair share of the pool."""

import math
from collections.abc import Mapping, Sequence

from simulation.run import CallResult
from simulation.what_if.baseline import Baseline

MOST_REFUSED = 0.01  # of a client's calls within its share; with more, the client counts as one that waits for ever


def client_slowdowns(records: Sequence[CallResult], baseline: Baseline) -> dict[str, float]:
    """Return the slowdown of each client over all its calls, whatever it asks for: the time that its completed calls
    took, divided by the time that they take alone.

    A client that asks for more than its share is slowed down alone, too, so its calls count as those of any other. The
    slowdown is infinite if none of them completed, or if too many within the share were refused. Calls that no worker
    accepts are left out, and so are clients that have no others.
    """
    by_client: dict[str, list[CallResult]] = {}
    for record in records:
        if record.number in baseline.alone:
            by_client.setdefault(record.client, []).append(record)
    return {client: _slowdown(calls, baseline) for client, calls in by_client.items()}


def mean_slowdown(slowdowns: Mapping[str, float]) -> float:
    """Return the geometric mean over the clients, in which each counts once, however many calls it makes."""
    logarithms = [math.log(slowdown) for slowdown in slowdowns.values()]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else math.inf


def _slowdown(calls: Sequence[CallResult], baseline: Baseline) -> float:
    within = baseline.within(calls)
    refused = sum(not call.completed for call in within)
    completed = [call for call in calls if call.completed]
    if not completed or refused > MOST_REFUSED * len(within):
        return math.inf
    alone = sum(baseline.alone[call.number].latency for call in completed)
    return sum(call.ended - call.arrival for call in completed) / alone
