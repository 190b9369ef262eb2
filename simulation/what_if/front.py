"""Which configurations no other beats, and which one to take."""

from collections.abc import Callable, Iterable, Sequence

from simulation.what_if.summary import Summary

Unfairness = Callable[[Summary], float]
TOLERANCE = 0.1  # a slowdown or gap that is larger by so much is as good


def slowdown(summary: Summary) -> float:
    """How many times as long the slowest hundredth of the judged calls took as alone, at least."""
    return summary.judged.slowdown_p99


def gap(summary: Summary) -> float:
    """By how much the service of two clients differed while both had requests waiting, cost units."""
    return summary.gap


def ranked(summaries: Iterable[Summary]) -> list[Summary]:
    """Best first: by the slowdown of whoever is judged, then by throughput; last those that leave a client out."""
    return sorted(summaries, key=lambda s: (bool(s.unanswered), slowdown(s), -s.service, s.name))


def pareto(summaries: Iterable[Summary], unfairness: Unfairness) -> list[Summary]:
    """Those under which every client is answered, and that no other such one beats in throughput and in `unfairness`,
    fastest first."""
    front: list[Summary] = []
    eligible = [summary for summary in summaries if not summary.unanswered]
    for summary in sorted(eligible, key=lambda s: (-s.service, unfairness(s), s.name)):
        if not front or unfairness(summary) < unfairness(front[-1]):
            front.append(summary)
    return front


def recommended(front: Sequence[Summary], unfairness: Unfairness) -> Summary:
    """Of those within TOLERANCE of the least `unfairness`, the one with the highest throughput."""
    least = min(unfairness(summary) for summary in front)
    good = [summary for summary in front if unfairness(summary) <= (1 + TOLERANCE) * least]
    return min(good, key=lambda s: (-s.service, unfairness(s), s.name))


def is_as_good(one: Summary, best: Summary) -> bool:
    """Whether slowdown and throughput are within TOLERANCE of those of `best`, and no client is left out."""
    good = slowdown(one) <= (1 + TOLERANCE) * slowdown(best) and one.service >= (1 - TOLERANCE) * best.service
    return good and not one.unanswered
