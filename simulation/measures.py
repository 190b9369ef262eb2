"""Measures of a run: service, throughput, cache hit rate."""

from itertools import accumulate

from serving.cost import MICRO, WeightedTokens
from simulation.run import SimulationRun


def received(run: SimulationRun, client: str) -> list[float]:
    """Return the service that `client` has received by the end of each second, as the client observes it.

    The whole prompt counts at its first token, cached or not, and the output is spread evenly from there to the end
    (VTC section 5.1; DLPM section 6.1, footnote 5).
    """
    price = WeightedTokens()
    rate = [0.0] * (int(run.seconds) + 2)
    for record in run.of(client):
        if record.first is None or not record.output_tokens:
            continue
        begin, end = int(record.first), int(record.ended)
        rate[begin] += price.extend(record.input_tokens, 0) / MICRO
        each = price.decode(record.output_tokens, record.input_tokens, 0) / MICRO / (end - begin + 1)
        for second in range(begin, end + 1):
            rate[second] += each
    return list(accumulate(rate))


def tokens_per_second(run: SimulationRun) -> float:
    """Return the input and output tokens of completed calls per second of the whole run (VTC Table 2)."""
    return sum(record.input_tokens + record.output_tokens for record in run.records if record.completed) / run.seconds


def service_rate(run: SimulationRun) -> float:
    """Return the service received per second of the whole run, in cost units (DLPM section 6.1)."""
    return sum(r.input_tokens + 2 * r.output_tokens for r in run.records if r.completed) / run.seconds


def hit_rate(run: SimulationRun) -> float:
    """Return the share of prompt tokens that a worker's cache held."""
    return sum(record.cached_tokens for record in run.records) / sum(record.input_tokens for record in run.records)
