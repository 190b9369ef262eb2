"""Sampling draws from the distribution that the parameters define."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairlead.token_ids import pack_ids
from local_worker.core.batch import Slice, StepResult
from local_worker.core.request import Request
from local_worker.engine.matchers import TokenMasks
from local_worker.engine.sampled_step import SampledStep, ScoredPrompts
from local_worker.engine.sampling import FIRST_CANDIDATES, adjust, choose
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import make_request

pytestmark = pytest.mark.slow

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0, -3.0]])
DRAWS = 2000


NOBODY = torch.empty(0, dtype=torch.int64)


def sample(logits: torch.Tensor, requests: Sequence[Request], eos: Sequence[int] = ()) -> StepResult:
    slices = [last_slice(request) for request in requests]
    return SampledStep(
        choose(logits, slices, NOBODY, eos), logits, slices, ScoredPrompts(logits[:0], slices), TokenMasks({})
    ).wait()


def last_slice(request: Request) -> Slice:
    stop = len(request.tokens)
    return Slice(
        request.arrival,
        tuple(request.tokens[-1:]),
        stop - 1,
        stop,
        (),
        True,
        request.sampling,
        request.prompt_tokens,
        request.seed_position,
        context=pack_ids(request.tokens),
    )


def frequencies(**parameters: float) -> list[float]:
    counts = [0] * LOGITS.shape[1]
    for seed in range(DRAWS):
        request = make_request([1], sampling=SamplingParams(max_tokens=1, seed=seed, **parameters))  # type: ignore[arg-type]
        counts[sample(LOGITS, [request]).tokens[0]] += 1
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
    assert_close(frequencies(temperature=1.0, top_p=1e-9), [1.0, 0.0, 0.0, 0.0, 0.0])


def test_min_p_is_relative_to_the_most_likely() -> None:
    # exp(-2) = 0.135 of the most likely: the third token falls below 0.2, the second (0.37) does not.
    assert_close(frequencies(temperature=1.0, min_p=0.2), [*softmax([2.0, 1.0]), 0.0, 0.0, 0.0])


def test_greedy_takes_the_most_likely() -> None:
    assert sample(LOGITS, [make_request([1])]).tokens == (0,)


def test_truncations_combine_as_top_k_then_top_p_then_min_p() -> None:
    # Among the top 3, renormalised: 0.67, 0.24, 0.09. The first two reach 0.8; the second has 0.37 of the first.
    assert_close(frequencies(temperature=1.0, top_k=3, top_p=0.8), [*softmax([2.0, 1.0]), 0.0, 0.0, 0.0])
    assert_close(frequencies(temperature=1.0, top_k=3, top_p=0.8, min_p=0.4), [1.0, 0.0, 0.0, 0.0, 0.0])


def test_a_nucleus_wider_than_the_first_candidates_is_found_whole() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 4 * FIRST_CANDIDATES) / 10  # nearly flat: nine tenths of the mass need most of the tokens
    ordered, order = logits[0].softmax(dim=-1).sort(descending=True)
    nucleus = set(order[: int((ordered.cumsum(dim=-1) < 0.9).sum()) + 1].tolist())
    assert len(nucleus) > 2 * FIRST_CANDIDATES
    requests = [
        make_request([1], sampling=SamplingParams(temperature=1.0, top_p=0.9, seed=seed)) for seed in range(DRAWS)
    ]
    drawn = [sample(logits, [request]).tokens[0] for request in requests]
    assert set(drawn) <= nucleus
    assert len(set(drawn)) > FIRST_CANDIDATES


def test_rows_with_different_parameters_are_drawn_as_if_alone() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 700)
    samplings = [
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(temperature=0.7, top_k=5, seed=2),
        SamplingParams(),
        SamplingParams(temperature=2.0, top_p=0.5, seed=3),
        SamplingParams(temperature=1.0, min_p=0.1, frequency_penalty=1.0, seed=4),
        SamplingParams(temperature=1.0, top_p=0.999, seed=5),
    ]
    requests = [make_request([7, 7, 9], sampling=sampling) for sampling in samplings]
    together = sample(logits, requests).tokens
    alone = tuple(sample(logits[row : row + 1], [request]).tokens[0] for row, request in enumerate(requests))
    assert together == alone


def test_the_number_of_first_candidates_changes_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA all that any row can need are looked at, at once."""
    torch.manual_seed(0)
    vocabulary = 12 * FIRST_CANDIDATES
    logits = torch.randn(40, vocabulary)
    ways = ({"top_p": 0.9}, {"top_k": 700}, {"min_p": 0.02}, {"top_p": 0.5, "top_k": 40})
    requests = [
        make_request([1], sampling=SamplingParams(temperature=1.0, seed=seed, **ways[seed % 4])) for seed in range(40)
    ]
    alone = [sample(logits[row : row + 1], [request]).tokens[0] for row, request in enumerate(requests)]
    monkeypatch.setattr("local_worker.engine.sampling.FIRST_CANDIDATES", vocabulary)
    assert alone == list(sample(logits, requests).tokens)


class Depths(TorchDispatchMode):
    """Keeps how many of the most likely tokens were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.topk.default:
            self.found.append(args[1])
        return function(*args, **kwargs or {})


def test_no_more_candidates_are_sorted_than_the_largest_top_k() -> None:
    samplings = [SamplingParams(temperature=1.0, top_k=top_k, top_p=0.99, seed=top_k) for top_k in (3, 20, 7)]
    requests = [make_request([1], sampling=sampling) for sampling in samplings]
    with Depths() as depths:
        sample(torch.randn(3, 4 * FIRST_CANDIDATES), requests)
    assert depths.found == [20]


def with_output(prompt: list[int], output: list[int], **parameters: Any) -> Request:
    request = make_request(prompt, sampling=SamplingParams(max_tokens=64, **parameters))
    request.tokens += output
    return request


def adjusted(request: Request) -> dict[int, float]:
    """The logits that a token is chosen from."""
    return {token: float(value) for token, value in enumerate(adjust(LOGITS, [last_slice(request)], NOBODY, ())[0])}


def test_presence_and_frequency_penalties_count_output_only() -> None:
    request = with_output([0, 0, 0], [1, 1, 2], presence_penalty=0.5, frequency_penalty=0.25)
    assert adjusted(request) == {0: 2.0, 1: 1.0 - 0.5 - 0.5, 2: 0.0 - 0.5 - 0.25, 3: -1.0, 4: -3.0}


def test_the_repetition_penalty_counts_the_prompt_too_and_always_lowers() -> None:
    request = with_output([0, 4], [3], repetition_penalty=2.0)
    assert adjusted(request) == {0: 1.0, 1: 1.0, 2: 0.0, 3: -2.0, 4: -6.0}


def test_biases_are_added_before_penalties() -> None:
    request = with_output([0], [1, 3], logit_bias=((0, -100.0), (3, 6.0)), repetition_penalty=2.0)
    assert adjusted(request) == {0: -196.0, 1: 0.5, 2: 0.0, 3: 2.5, 4: -3.0}


def test_a_bias_decides_which_token_is_the_most_likely() -> None:
    biased = with_output([1], [0], logit_bias=((4, 100.0),), logprobs=0)
    result = sample(LOGITS.repeat(2, 1), [make_request([1]), biased])
    assert result.tokens == (0, 4)
    assert result.logprobs[1] is not None
    assert result.logprobs[1].logprob == pytest.approx(math.log(softmax(LOGITS[0].tolist())[4]), abs=1e-5), (
        "the model's"
    )


def test_penalties_go_on_over_the_output_of_earlier_attempts() -> None:
    whole = with_output([0, 0], [1, 1, 2], frequency_penalty=0.5)
    resumed = make_request([0, 0, 1, 1], seed_position=2, sampling=SamplingParams(max_tokens=62, frequency_penalty=0.5))
    resumed.tokens.append(2)
    assert adjusted(resumed) == adjusted(whole)


def test_no_end_before_min_tokens() -> None:
    early = with_output([1], [3], min_tokens=2, stop_token_ids=(1,))
    assert sample(LOGITS, [early], (0,)).tokens == (2,)
    late = with_output([1], [3, 3], min_tokens=2, stop_token_ids=(1,))
    assert sample(LOGITS, [late], (0,)).tokens == (0,)
    told_to_ignore = with_output([1], [3], min_tokens=2, ignore_eos=True)
    assert sample(LOGITS, [told_to_ignore], (0,)).tokens == (0,)


def test_logprobs_are_the_models_own_whatever_changes_the_choice() -> None:
    plain = make_request([1])
    asking = with_output([1], [0], logprobs=2, presence_penalty=2.0)
    result = sample(LOGITS.repeat(2, 1), [plain, asking])
    assert result.tokens == (0, 1)
    assert result.logprobs[0] is None
    entry = result.logprobs[1]
    assert entry is not None
    expected = [math.log(p) for p in softmax(LOGITS[0].tolist())]
    assert entry.logprob == pytest.approx(expected[1], abs=1e-5)
    assert [token for token, _ in entry.top] == [0, 1]
    assert [value for _, value in entry.top] == pytest.approx(expected[:2], abs=1e-5)
    assert sample(LOGITS, [plain]).logprobs == ()


@pytest.mark.parametrize("parameters", [{}, {"top_k": 3}, {"top_p": 0.9}, {"repetition_penalty": 0.01}])
@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 0.0009, 0.001])
def test_the_smallest_parameters_draw_a_token_of_the_vocabulary(temperature: float, parameters: dict[str, Any]) -> None:
    """Nothing overflows: an impossible token of one request would end everybody's in the next step."""
    logits = torch.tensor([[-90.0, 80.0, 79.9, -3.0, 60.0]])
    sampling = SamplingParams(max_tokens=1, seed=5, temperature=temperature, **parameters)
    assert sample(logits, [make_request([4], sampling=sampling)]).tokens == (
        (4,) if "repetition_penalty" in parameters else (1,)
    )
