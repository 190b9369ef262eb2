"""Sampling draws from the distribution that the parameters define."""

import math

import torch

from fairlead.sampling import Sampling
from local_worker.engine.sampling import sample
from tests.local_worker.engine.driving import make_request

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0, -3.0]])
DRAWS = 4000


def frequencies(**parameters: float) -> list[float]:
    counts = [0] * LOGITS.shape[1]
    for seed in range(DRAWS):
        request = make_request([1], sampling=Sampling(max_tokens=1, seed=seed, **parameters))  # type: ignore[arg-type]
        counts[sample(LOGITS, [request])[0]] += 1
    return [count / DRAWS for count in counts]


def assert_close(found: list[float], expected: list[float]) -> None:
    """Within five standard deviations of a binomial; impossible tokens never come."""
    for f, p in zip(found, expected, strict=True):
        assert abs(f - p) <= 5 * math.sqrt(p * (1 - p) / DRAWS), (found, expected)


def softmax(logits: list[float]) -> list[float]:
    weights = [math.exp(value) for value in logits]
    return [weight / sum(weights) for weight in weights]


def test_temperature() -> None:
    assert_close(frequencies(temperature=1.0), softmax(LOGITS[0].tolist()))
    assert_close(frequencies(temperature=0.5), softmax([2 * value for value in LOGITS[0].tolist()]))


def test_top_k_keeps_the_k_most_likely() -> None:
    kept = softmax([2.0, 1.0])
    assert_close(frequencies(temperature=1.0, top_k=2), [*kept, 0.0, 0.0, 0.0])


def test_top_p_keeps_the_least_set_that_reaches_p() -> None:
    # Probabilities 0.64, 0.24, 0.09, …: two tokens reach 0.7.
    assert_close(frequencies(temperature=1.0, top_p=0.7), [*softmax([2.0, 1.0]), 0.0, 0.0, 0.0])


def test_min_p_is_relative_to_the_most_likely() -> None:
    # exp(-2) = 0.135 of the most likely: the third token falls below 0.2, the second (0.37) does not.
    assert_close(frequencies(temperature=1.0, min_p=0.2), [*softmax([2.0, 1.0]), 0.0, 0.0, 0.0])


def test_greedy_takes_the_most_likely() -> None:
    assert sample(LOGITS, [make_request([1])]) == (0,)
