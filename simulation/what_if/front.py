"""The Pareto front of configurations, and the recommended one."""

from collections.abc import Callable, Iterable, Sequence

from simulation.what_if.summary import Summary

Unfairness = Callable[[Summary], float]
TOLERANCE = 0.1  # relative difference up to which two slowdowns or gaps count as equal
NOISE = 0.01  # relative difference of two throughputs that another trace of the same kind may turn round


def slowdown(summary: Summary) -> float:
    """Return the mean slowdown of the clients over the isolated baseline, in which each client counts once."""
    return summary.of_clients


def gap(summary: Summary) -> float:
    """Return the largest difference of two clients' service while both had a backlog, in cost units."""
    return summary.gap


def ranked(summaries: Iterable[Summary]) -> list[Summary]:
    """Return the summaries, best first: by the slowdown of the clients, then by throughput.

    Configurations that leave a client without any answer come last.
    """
    return sorted(summaries, key=lambda s: (bool(s.unanswered), slowdown(s), -s.service, s.name))


def pareto(summaries: Iterable[Summary], unfairness: Unfairness) -> list[Summary]:
    """Return the configurations that answer every client and that no other such configuration beats, fastest first.

    One beats another if it is better in throughput and in `unfairness`.
    """
    front: list[Summary] = []
    eligible = [summary for summary in summaries if not summary.unanswered]
    for summary in sorted(eligible, key=lambda s: (-s.service, unfairness(s), s.name)):
        if not front or unfairness(summary) < unfairness(front[-1]):
            front.append(summary)
    return front


def recommended(front: Sequence[Summary], unfairness: Unfairness) -> Summary:
    """Return the configuration with the highest throughput of those within TOLERANCE of the least `unfairness`.

    Of those whose throughput differs by no more than NOISE, it is the one with the least `unfairness`.
    """
    least = min(unfairness(summary) for summary in front)
    good = [summary for summary in front if unfairness(summary) <= (1 + TOLERANCE) * least]
    most = max(summary.service for summary in good)
    fastest = [summary for summary in good if summary.service >= (1 - NOISE) * most]
    return min(fastest, key=lambda s: (unfairness(s), -s.service, s.name))


def is_as_good(one: Summary, best: Summary) -> bool:
    """Return whether slowdown and throughput are within TOLERANCE of `best`, and every client has an answer."""
    good = slowdown(one) <= (1 + TOLERANCE) * slowdown(best) and one.service >= (1 - TOLERANCE) * best.service
    return good and not one.unanswered
