"""The recommended configuration of a comparison, with reasons."""

from collections.abc import Sequence

from simulation.what_if.front import NOISE, TOLERANCE, is_as_good, pareto, recommended, slowdown
from simulation.what_if.summary import Summary

REUSE = 0.01  # share of prompt tokens; a hit rate below it counts as no reuse


def best_of(summaries: Sequence[Summary]) -> Summary | None:
    """Return the recommended configuration, or None when every configuration leaves some client without any answer."""
    front = pareto(summaries, slowdown)
    return recommended(front, slowdown) if front else None


def reasons_for(best: Summary, summaries: Sequence[Summary]) -> list[str]:
    judged = best.judged
    lines = [f"recommended: {best.name}"]
    if len(summaries) > 1:
        lines.append(
            f"  it has the most throughput, but for noise ({best.service:,.0f} service/s), of those whose slowdown is "
            f"within {TOLERANCE:.0%} of the least"
        )
    if equal := [s.name for s in summaries if s is not best and is_as_good(s, best) and _differs_by_noise(s, best)]:
        lines.append(f"  no difference beyond noise (throughput within {NOISE:.0%}) to {'; '.join(equal)}")
    lines.append(
        f"  a client's calls take {best.of_clients:,.2f} times as long as if it were alone with its fair share, in the "
        f"mean over clients; the first token of calls within that share comes after {judged.ttft_mean:,.2f} s"
    )
    slowest = max(summaries, key=lambda s: s.judged.ttft_mean)
    if slowest.judged.ttft_mean > (1 + TOLERANCE) * judged.ttft_mean:
        lines.append(f"  under {slowest.name} it comes after {slowest.judged.ttft_mean:,.2f} s")
    if best.refused:
        calls = best.answered + best.refused
        lines.append(f"  {best.refused:,} of {calls:,} calls are refused, to one client {1 - best.least_answered:.0%}")
    return lines


def _differs_by_noise(one: Summary, best: Summary) -> bool:
    return abs(one.service - best.service) <= NOISE * best.service


def alternatives(best: Summary, summaries: Sequence[Summary]) -> list[str]:
    """Return the configurations that are as good as `best`, and whether prefix-aware policies help on this trace."""
    equal = [summary.name for summary in summaries if summary is not best and is_as_good(summary, best)]
    lines = []
    if equal:
        lines.append(f"as good, with a slowdown and a throughput within {TOLERANCE:.0%}: {'; '.join(equal)}")
    most = max(summary.hits for summary in summaries)
    if most < REUSE:
        lines.append(
            f"no prefix is used again (hit rate at most {most:.1%}): policies that keep prefixes (dlpm; least-delay, "
            "doubleq) "
            "gain nothing here over simpler ones (vtc; least-loaded)"
        )
    return lines
