"""One workload under several configurations: what an operator compares."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fairlead.cost import MICRO
from fairlead.metrics import percentile
from fairlead.outcomes import Outcome
from simulation.reproduction.measures import (
    common_span,
    fairness,
    hit_rate,
    service_rate,
    tokens_per_second,
)
from simulation.reproduction.run import Record, Run
from simulation.spec import ClusterSpec

HEADER = (
    "configuration",
    "answered",
    "refused",
    "least answered",
    "tokens/s",
    "service/s",
    "hit rate",
    "TTFT p50 s",
    "TTFT p99 s",
    "latency p99 s",
    "worst client TTFT s",
    "Jain index",
    "gap",
    "bound",
    "end s",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """One configuration's row. Seconds, infinite where nobody was answered; gap and bound in cost units, of one worker,
    None without a promise."""

    name: str
    answered: int
    refused: int
    unanswered: tuple[str, ...]  # clients without an answered call
    least_answered: float  # share of its calls, of the client for whom it is smallest
    tokens: float
    service: float
    hits: float
    ttft_p50: float
    ttft_p99: float
    latency_p99: float
    worst_client: float  # mean time to the first token; infinite when a client was never answered
    jain: float | None  # None: never were all clients active
    gap: float
    bound: float | None
    seconds: float

    def cells(self) -> tuple[object, ...]:
        """In the order of HEADER."""
        return (
            *(self.name, self.answered, self.refused, self.least_answered, self.tokens, self.service, self.hits),
            *(self.ttft_p50, self.ttft_p99, self.latency_p99, self.worst_client),
            *(self.jain, self.gap, self.bound, self.seconds),
        )


Unfairness = Callable[[Summary], float]


def waiting(summary: Summary) -> float:
    """What the worst client waits, seconds."""
    return summary.worst_client


def gap(summary: Summary) -> float:
    """By how much the service of two clients differed while both had requests waiting, cost units."""
    return summary.gap


def summarize(name: str, run: Run) -> Summary:
    """What became of everybody, also of those who got nothing."""
    by_client: dict[str, list[Record]] = {}
    for record in run.records:
        by_client.setdefault(record.client, []).append(record)
    done = [record for record in run.records if record.completed]
    waits = _waits(done)
    shares = {client: sum(r.completed for r in records) / len(records) for client, records in by_client.items()}
    return Summary(
        name=name,
        answered=len(done),
        refused=len(run.records) - len(done),
        unanswered=tuple(sorted(client for client, share in shares.items() if not share)),
        least_answered=min(shares.values()),
        tokens=tokens_per_second(run) if done else 0.0,
        service=service_rate(run) if done else 0.0,
        hits=hit_rate(run),
        ttft_p50=_percentile(waits, 50),
        ttft_p99=_percentile(waits, 99),
        latency_p99=_percentile([record.ended - record.arrival for record in done], 99),
        worst_client=max(_mean(_waits(records)) for records in by_client.values()),
        jain=fairness(run) if common_span(run) else None,
        gap=run.worst_gap / MICRO,
        bound=None if run.bound is None else run.bound / MICRO,
        seconds=run.seconds,
    )


def _waits(records: Iterable[Record]) -> list[float]:
    """Until the first token, of answered calls."""
    return [r.first - r.arrival for r in records if r.completed and r.first is not None]


def _mean(waits: Sequence[float]) -> float:
    """Who was never answered waits for ever."""
    return sum(waits) / len(waits) if waits else math.inf


def _percentile(waits: Sequence[float], q: float) -> float:
    """Likewise."""
    return percentile(waits, q) if waits else math.inf


def reasons(run: Run, spec: ClusterSpec) -> list[str]:
    """Why calls were refused, and how many, with the limits that refused them."""
    limits = {
        Outcome.REJECTED_TOO_LONG: f"max_prompt_tokens {spec.worker.max_prompt_tokens}, "
        f"kv_tokens {spec.worker.kv_tokens}",
        Outcome.REJECTED_QUEUE_FULL: f"max_waiting {spec.worker.max_waiting}",
        Outcome.THROTTLED_USER: f"user_per_minute {spec.limits.user_per_minute}",
        Outcome.THROTTLED_APP: f"app_per_minute {spec.limits.app_per_minute}",
    }
    counts = Counter(record.outcome for record in run.records if not record.completed)
    return [
        f"{count} {outcome.name.lower().replace('_', ' ')}" + (f" ({limits[outcome]})" if outcome in limits else "")
        for outcome, count in sorted(counts.items())
    ]


def pareto(summaries: Iterable[Summary], unfairness: Unfairness) -> list[Summary]:
    """Those under which every client is answered, and that no other such one beats in throughput and in `unfairness`,
    fastest first."""
    front: list[Summary] = []
    eligible = [summary for summary in summaries if not summary.unanswered]
    for summary in sorted(eligible, key=lambda s: (-s.service, unfairness(s), s.name)):
        if not front or unfairness(summary) < unfairness(front[-1]):
            front.append(summary)
    return front


def recommended(front: Sequence[Summary], unfairness: Unfairness, tolerance: float = 0.05) -> Summary:
    """Of those within `tolerance` of the best throughput, the fairest."""
    best = max(summary.service for summary in front)
    good = [summary for summary in front if summary.service >= (1 - tolerance) * best]
    return min(good, key=lambda s: (unfairness(s), -s.service, s.name))
