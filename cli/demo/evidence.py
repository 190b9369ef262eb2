"""What one run showed, reduced to the numbers that are compared."""

from collections.abc import Sequence
from dataclasses import dataclass

from cli.demo.observation import Observation, Sample
from cli.demo.scenario import PERSONAS, Record
from fairlead.metrics import jain_index, percentile


@dataclass(frozen=True, slots=True)
class UserEvidence:
    """One user's part of a run. Times in seconds, service in cost units."""

    user: str
    role: str
    service: float
    share: float
    requests: int
    ttft_p50: float
    ttft_p99: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run."""

    title: str
    seconds: float
    users: tuple[UserEvidence, ...]
    jain: float
    gap: float
    hit_rate: float
    tokens_per_second: float
    backlogged: dict[str, float]  # share of the samples in which the user waited on every worker
    errors: int


def backlogged_gap(samples: Sequence[Sample], users: Sequence[str]) -> float:
    """The most that any user got ahead of a continuously backlogged one, over every interval (DLPM Thms 5.1, 5.2).

    For each ordered pair (g, f): the largest rise of `W_g - W_f` within a stretch of samples in which f is backlogged.
    One pass per pair, with the running minimum since the stretch began.
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


def weigh(title: str, record: Record, observation: Observation) -> Evidence:
    """The evidence of a run; raises ValueError when a user was never served."""
    samples = observation.samples
    seconds, final = samples[-1].at, samples[-1].service
    total = sum(final.get(persona.name, 0.0) for persona in PERSONAS)
    users = []
    for persona in PERSONAS:
        calls = [call for call in record.calls if call.user == persona.name]
        if not calls:
            raise ValueError(f"{title}: {persona.name} was never served; first errors: {record.errors[:3]}")
        waits = [call.ttft for call in calls]
        service = final.get(persona.name, 0.0)
        users.append(
            UserEvidence(
                persona.name,
                persona.role,
                service,
                service / total,
                len(calls),
                percentile(waits, 50),
                percentile(waits, 99),
            )
        )
    names = [persona.name for persona in PERSONAS]
    return Evidence(
        title=title,
        seconds=seconds,
        users=tuple(users),
        jain=jain_index([user.service for user in users]),
        gap=backlogged_gap(samples, names),
        hit_rate=sum(call.cached_tokens for call in record.calls) / sum(call.prompt_tokens for call in record.calls),
        tokens_per_second=sum(call.output_tokens for call in record.calls) / seconds,
        backlogged={name: sum(s.backlogged.get(name, False) for s in samples) / len(samples) for name in names},
        errors=len(record.errors),
    )
