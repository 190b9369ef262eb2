"""One workload under several configurations: what an operator compares."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.cost import MICRO
from fairlead.errors import InvalidRequest
from fairlead.metrics import percentile
from simulation.reproduction.measures import (
    common_span,
    fairness,
    first_token_times,
    hit_rate,
    service_rate,
    tokens_per_second,
)
from simulation.reproduction.run import Run

HEADER = (
    "configuration",
    "answered",
    "refused",
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
    """One configuration's row. Seconds; gap and bound in cost units, of one worker, None without a promise."""

    name: str
    answered: int
    refused: int
    tokens: float
    service: float
    hits: float
    ttft_p50: float
    ttft_p99: float
    latency_p99: float
    worst_client: float
    jain: float | None  # None: never were all clients active
    gap: float
    bound: float | None
    seconds: float

    def cells(self) -> tuple[object, ...]:
        """In the order of HEADER."""
        return (
            *(self.name, self.answered, self.refused, self.tokens, self.service, self.hits),
            *(self.ttft_p50, self.ttft_p99, self.latency_p99, self.worst_client),
            *(self.jain, self.gap, self.bound, self.seconds),
        )


def summarize(name: str, run: Run) -> Summary:
    """Raises InvalidRequest when nothing was answered."""
    done = [record for record in run.records if record.completed]
    if not done:
        raise InvalidRequest(f"{name}: nothing was answered: {', '.join(reasons(run))}")
    waits = [record.first - record.arrival for record in done if record.first is not None]
    means = [sum(times) / len(times) for client in run.clients if (times := first_token_times(run, client))]
    return Summary(
        name=name,
        answered=len(done),
        refused=len(run.records) - len(done),
        tokens=tokens_per_second(run),
        service=service_rate(run),
        hits=hit_rate(run),
        ttft_p50=percentile(waits, 50),
        ttft_p99=percentile(waits, 99),
        latency_p99=percentile([record.ended - record.arrival for record in done], 99),
        worst_client=max(means),
        jain=fairness(run) if common_span(run) else None,
        gap=run.worst_gap / MICRO,
        bound=None if run.bound is None else run.bound / MICRO,
        seconds=run.seconds,
    )


def reasons(run: Run) -> list[str]:
    """Why calls were refused, and how many."""
    counts = Counter(record.outcome.name for record in run.records if not record.completed)
    return [f"{count} {reason.lower().replace('_', ' ')}" for reason, count in sorted(counts.items())]


def pareto(summaries: Iterable[Summary]) -> list[Summary]:
    """Those that no other beats in throughput and in what the worst client waits, fastest first."""
    front: list[Summary] = []
    for summary in sorted(summaries, key=lambda s: (-s.service, s.worst_client, s.name)):
        if not front or summary.worst_client < front[-1].worst_client:
            front.append(summary)
    return front


def recommended(front: Sequence[Summary], tolerance: float = 0.05) -> Summary:
    """Of those within `tolerance` of the best throughput, the one whose worst client waits least."""
    best = max(summary.service for summary in front)
    good = [summary for summary in front if summary.service >= (1 - tolerance) * best]
    return min(good, key=lambda s: (s.worst_client, -s.service, s.name))
