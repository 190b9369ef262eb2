"""The measures of FairServe section 5, computed from runs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from lab.reproduction.fairserve_workload import LATE, SECONDS
from lab.reproduction.item import Item, Report, Study
from lab.reproduction.sources import Sources
from serving.statistics import percentile
from simulation.run import CallResult, SimulationRun
from simulation.simulation_job import SimulationJob

Runs = Mapping[str, SimulationRun]
BENIGN = "user"  # prefix of the names of users who are not abusive
NORMAL = 95  # percentile of the benign users' requests that still counts as normal


def item(name: str, figure: str, jobs: Mapping[str, SimulationJob], read: Callable[[Runs], Report], setup: str) -> Item:
    """Make an item that needs no data."""

    def study(_sources: Sources) -> Study:
        return Study(setup, jobs, read)

    return Item(name, f"FairServe {figure}", study)


def interactions(run: SimulationRun) -> dict[str, list[CallResult]]:
    """Return each interaction's calls in order."""
    chains: dict[str, list[CallResult]] = {}
    for record in run.records:
        chains.setdefault(record.interaction, []).append(record)
    return chains


def cut(run: SimulationRun) -> list[list[CallResult]]:
    """Return the interactions that had begun when one of their calls was refused."""
    return [chain for chain in interactions(run).values() if chain[0].completed and not chain[-1].completed]


def refused(run: SimulationRun) -> list[list[CallResult]]:
    """Return the interactions that never got their final answer."""
    return [chain for chain in interactions(run).values() if not chain[-1].completed]


def wasted(run: SimulationRun) -> int:
    """Return the tokens of calls whose interaction began but never got its final answer."""
    return sum(r.input_tokens + r.output_tokens for chain in cut(run) for r in chain if r.completed)


def throttled_users(run: SimulationRun) -> list[str]:
    """Return the users with a refused call, sorted."""
    return sorted({record.client for record in run.records if not record.completed})


def sent(run: SimulationRun) -> Counter[str]:
    """Count the calls by user."""
    return Counter(record.client for record in run.records)


def normal(run: SimulationRun) -> float:
    """Return the 95th percentile of the benign users' numbers of calls."""
    return percentile([calls for user, calls in sent(run).items() if is_benign(user)], NORMAL)


def is_benign(user: str) -> bool:
    """Return whether the name that the workload gave marks a benign user."""
    return user.startswith(BENIGN)


def delayed(run: SimulationRun, seconds: float = LATE) -> float:
    """Return the share of the benign users with a call that waited longer than `seconds` in a queue."""
    benign = [client for client in run.clients if is_benign(client)]
    late = {r.client for r in run.records if r.admitted is not None and r.admitted - r.arrival > seconds}
    return sum(client in late for client in benign) / len(benign)


def mean_first(records: Sequence[CallResult]) -> float:
    """Return the mean first-token latency of answered calls, in seconds."""
    return fmean(r.first - r.arrival for r in records if r.first is not None)


def tokens(
    run: SimulationRun, value: Callable[[CallResult], int], app: str | None = None, seconds: float = SECONDS
) -> float:
    """Return the mean of `value` per second over calls that were answered within the first `seconds`."""
    within = (r for r in run.records if r.completed and r.ended <= seconds and app in (None, r.app))
    return sum(value(r) for r in within) / seconds


def prompt(record: CallResult) -> int:
    """Return the call's input tokens, as a value for `tokens`."""
    return record.input_tokens


def output(record: CallResult) -> int:
    """Return the call's output tokens, as a value for `tokens`."""
    return record.output_tokens
