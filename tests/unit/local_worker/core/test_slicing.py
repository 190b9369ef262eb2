"""How a step's tokens are divided, and what the engine is told of each request."""

import pytest

from fairlead.errors import TooLong
from fairlead.token_ids import pack_ids
from local_worker.core.batch import Batch
from local_worker.core.limits import check_sizes
from local_worker.core.plan import SCORED_TOKENS, shares, slice_of
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import make_batcher, make_request


def test_decoding_requests_take_part_first_and_prompts_share_the_rest_in_order() -> None:
    decoding, first, done, second = (make_request([1] * length, arrival=length) for length in (3, 4, 5, 6))
    decoding.computed, done.computed = 2, 5
    taking = list(shares([first, decoding, done, second], 7))
    assert taking == [(decoding, 1), (first, 4), (second, 2)], "nothing is due of one that is computed"
    assert list(shares([first, decoding], 1)) == [(decoding, 1)]


def test_prompts_whose_scores_are_requested_share_a_limit_of_their_own() -> None:
    scored = SamplingParams(max_tokens=1, prompt_logprobs=0)
    requests = [make_request([1] * 200, arrival=number, sampling=scored) for number in range(3)]
    taking = list(shares(requests, 1000))
    assert taking == [(requests[0], 200), (requests[1], SCORED_TOKENS - 200)]


@pytest.mark.parametrize(("penalty", "tokens"), [(0.5, (1, 2, 3)), (0.0, ())])
def test_earlier_tokens_are_told_where_they_change_the_next_one(penalty: float, tokens: tuple[int, ...]) -> None:
    request = make_request([1, 2, 3], sampling=SamplingParams(max_tokens=4, presence_penalty=penalty))
    unfinished = slice_of(request, 2, {})
    assert (unfinished.samples, unfinished.context) == (False, b"")
    whole = slice_of(request, 3, {})
    assert (whole.samples, whole.context) == (True, pack_ids(tokens))


def test_tokens_are_packed_once_as_they_come() -> None:
    request = make_request([1, 2, 3])
    request.packed = pack_ids([1, 2])
    assert request.packed_to(3) == pack_ids([1, 2, 3])
    assert request.packed_to(4) == pack_ids([1, 2, 3]), "the fourth is in flight"
    request.tokens.append(4)
    assert request.packed_to(4) == pack_ids([1, 2, 3, 4])
    assert request.packed_to(2) == pack_ids([1, 2])


@pytest.mark.parametrize(
    ("token_budget", "kv_tokens", "wrong"),
    [
        (9, 64, ""),
        (8, 64, r"token_budget: must be above max_running \(8\).*; got 8"),
        (9, 0, r"kv_tokens: must be a positive multiple of block_tokens \(16\), got 0"),
        (9, 65, r"kv_tokens: must be a positive multiple of block_tokens \(16\), got 65"),
        (None, None, ""),
    ],
)
def test_sizes_that_do_not_fit_are_refused(token_budget: int | None, kv_tokens: int | None, wrong: str) -> None:
    def check() -> None:
        check_sizes(max_running=8, token_budget=token_budget, kv_tokens=kv_tokens, block_tokens=16)

    if wrong:
        with pytest.raises(ValueError, match=wrong):
            check()
    else:
        check()


def test_a_device_that_runs_one_request_needs_a_token_for_prompts() -> None:
    with pytest.raises(ValueError, match=r"above max_running \(1\).*; got 1"):
        check_sizes(max_running=None, token_budget=1, kv_tokens=None, block_tokens=16)
    check_sizes(max_running=None, token_budget=2, kv_tokens=1, block_tokens=1)


def test_a_slice_counts_the_tokens_that_it_computes_and_the_output_before_it() -> None:
    request = make_request([1, 2, 3])
    request.computed = 2
    request.tokens.extend([4, 5])
    piece = slice_of(request, 3, {})
    assert (piece.output_tokens, Batch((piece, piece)).tokens) == (2, 6)


def test_a_request_fits_that_fills_the_cache_and_output_of_earlier_attempts_is_no_prompt() -> None:
    request = make_request([1] * 10, sampling=SamplingParams(max_tokens=5), seed_position=4)
    queue = make_batcher(block_tokens=1, pages=15, max_prompt_tokens=6).queue
    queue.submit(request, 0.0)
    assert request in queue.waiting
    with pytest.raises(TooLong, match="make 15; the KV cache holds 14"):
        make_batcher(block_tokens=1, pages=14, max_prompt_tokens=6).queue.submit(request, 0.0)
    with pytest.raises(TooLong, match="at most 6 prompt tokens, got 7"):
        queue.submit(make_request([1] * 7), 0.0)
