"""Which of the compared configurations to take, and why."""

from collections.abc import Sequence

from simulation.what_if.front import TOLERANCE, pareto, recommended, slowdown
from simulation.what_if.summary import Summary


def best_of(summaries: Sequence[Summary]) -> Summary | None:
    """The recommended one; None when every configuration leaves some client without any answer."""
    front = pareto(summaries, slowdown)
    return recommended(front, slowdown) if front else None


def reasons_for(best: Summary, summaries: Sequence[Summary]) -> list[str]:
    """In sentences."""
    judged = best.judged
    lines = [f"recommended: {best.name}"]
    if len(summaries) > 1:
        lines.append(
            f"  it has the most throughput ({best.service:,.0f} service/s) of those whose slowdown is within "
            f"{TOLERANCE:.0%} of the least"
        )
    lines.append(
        f"  99 of 100 calls within their client's fair share take at most {judged.slowdown_p99:,.2f} times as long as "
        f"if the client were alone with that share; their first token comes after {judged.ttft_mean:,.2f} s on average"
    )
    slowest = max(summaries, key=lambda s: s.judged.ttft_mean)
    if slowest.judged.ttft_mean > (1 + TOLERANCE) * judged.ttft_mean:
        lines.append(f"  under {slowest.name} it comes after {slowest.judged.ttft_mean:,.2f} s")
    if best.refused:
        calls = best.answered + best.refused
        lines.append(f"  {best.refused:,} of {calls:,} calls are refused, to one client {1 - best.least_answered:.0%}")
    return lines
