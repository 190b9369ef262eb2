"""The numbers of a trial that are compared, and the findings of the comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

from cli.demo.observation import ServiceSample
from cli.demo.trial import Trial
from cli.demo.users import USERS
from serving.statistics import percentile

NAMES = [user.name for user in USERS]
NEAR = 0.8  # a hit rate of at least this share of another one counts as near it


@dataclass(frozen=True, slots=True)
class UserEvidence:
    """One user's part of a trial; times are in seconds, service in cost units."""

    user: str
    service: float
    share: float
    requests: int
    ttft_p50: float
    ttft_p99: float
    backlogged: float  # share of the samples in which it waited on every worker


@dataclass(frozen=True, slots=True)
class Evidence:
    """The results of one trial; service and gap are in cost units."""

    title: str
    seconds: float
    service_rate: float  # cost units per second
    users: tuple[UserEvidence, ...]
    gap: float
    hit_rate: float
    tokens_per_second: float  # of output
    errors: int
    cut: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim of the demo, with the measured figures for it or against it."""

    claim: str
    figures: str
    holds: bool


def backlogged_gap(samples: Sequence[ServiceSample], users: Sequence[str]) -> float:
    """Return the most service that a user gained over a continuously backlogged one in any interval (DLPM Thms 5.1,
    5.2).

    For each ordered pair (g, f), this is the largest rise of `W_g - W_f` within a sequence of samples in which f is
    backlogged. It takes one pass per pair, with the running minimum since the sequence began.
    """
    worst = 0.0
    for f in users:
        for g in users:
            lowest: float | None = None
            for sample in samples:
                if not sample.backlogged.get(f, False):
                    lowest = None
                    continue
                ahead = sample.service.get(g, 0.0) - sample.service.get(f, 0.0)
                lowest = ahead if lowest is None else min(lowest, ahead)
                worst = max(worst, ahead - lowest)
    return worst


def weigh(trial: Trial) -> Evidence:
    """Return the results of a trial; raises ValueError when a user was never served."""
    calls, samples = trial.record.calls, trial.observation.samples
    if trial.unserved:
        names = " and ".join(trial.unserved)
        raise ValueError(f"{trial.system.title} never served {names}; first errors: {trial.record.errors[:3]}")
    seconds = samples[-1].at
    return Evidence(
        title=trial.system.title,
        seconds=seconds,
        service_rate=trial.observation.served / seconds,
        users=tuple(_of_user(trial, name) for name in NAMES),
        gap=backlogged_gap(samples, NAMES),
        hit_rate=sum(call.cached_tokens for call in calls) / sum(call.prompt_tokens for call in calls),
        tokens_per_second=sum(call.output_tokens for call in calls) / seconds,
        errors=len(trial.record.errors),
        cut=trial.cut,
    )


def _of_user(trial: Trial, name: str) -> UserEvidence:
    samples = trial.observation.samples
    waits = [call.ttft for call in trial.record.calls if call.user == name]
    service = samples[-1].service.get(name, 0.0)
    return UserEvidence(
        user=name,
        service=service,
        share=service / trial.observation.served,
        requests=len(waits),
        ttft_p50=percentile(waits, 50),
        ttft_p99=percentile(waits, 99),
        backlogged=sum(sample.backlogged.get(name, False) for sample in samples) / len(samples),
    )


def in_seconds(bound: float, runs: Sequence[Evidence]) -> float:
    """Return the time in which the workers give as much service as `bound`, under DLPM, the last of `runs`."""
    return bound / runs[-1].service_rate


def findings(runs: Sequence[Evidence], bound: float) -> list[Finding]:
    """Compare the claims of the demo with `runs` under FCFS, VTC and DLPM; `bound` is DLPM's in the pool, in cost
    units."""
    fcfs, vtc, dlpm = runs

    def against_bound(evidence: Evidence) -> str:
        return f"{evidence.gap:,.0f} against {bound:,.0f}"

    hits = f"{dlpm.hit_rate:.0%} against {{:.0%}}"
    return [
        Finding("FCFS exceeds the bound", against_bound(fcfs), fcfs.gap > bound),
        Finding(f"{dlpm.title} stays within it", against_bound(dlpm), dlpm.gap <= bound),
        Finding("its hit rate is near that of FCFS", hits.format(fcfs.hit_rate), dlpm.hit_rate >= NEAR * fcfs.hit_rate),
        Finding("and above that of VTC", hits.format(vtc.hit_rate), dlpm.hit_rate > vtc.hit_rate),
    ]
