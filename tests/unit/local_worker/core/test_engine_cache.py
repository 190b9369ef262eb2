"""What is known of the cache of an engine that pages by itself: matches, promised pages, and changes that are told."""

from fairlead.token_ids import pack_ids
from local_worker.core.engine_cache import EngineCache
from local_worker.core.request import Request
from serving.blocks import Link, chain, unpack_digests
from serving.sampling_params import SamplingParams

BLOCK = 4


def prompt(length: int, first: int = 0) -> Request:
    """Return a request whose prompt has `length` tokens, the numbers from `first` on."""
    tokens = list(range(first, first + length))
    return Request(
        id="r",
        client="c",
        tokens=tokens,
        prompt_tokens=length,
        digests=list(unpack_digests(chain(pack_ids(tokens), BLOCK, 7))),
        chain_seed=7,
        sampling=SamplingParams(max_tokens=1),
        arrival=0,
    )


def links(request: Request) -> list[Link]:
    return list(zip(request.digests, (0, *request.digests), strict=False))


def caching(request: Request, pages: int = 20) -> EngineCache:
    """Return the cache of an engine that has the blocks of `request`."""
    cache = EngineCache(pages, BLOCK)
    cache.cached(links(request))
    return cache


def test_the_block_of_the_last_token_is_computed_in_any_case() -> None:
    cache = caching(prompt(16))
    assert [cache.match(prompt(length)) for length in (3, 8, 9, 13, 16)] == [0, 4, 8, 12, 12]


def test_output_has_no_digests_and_matches_nothing() -> None:
    request = prompt(9)
    cache = caching(request)
    request.tokens.extend([1] * 8)
    assert (cache.match(request), request.matched_blocks) == (8, 2)


def test_a_match_shrinks_to_the_blocks_that_are_left() -> None:
    request = prompt(13)
    cache = caching(request)
    lengths = [cache.match(request)]
    for digest in reversed(request.digests):
        cache.evicted([digest])
        lengths.append(cache.match(request))
    assert lengths == [12, 8, 4, 0]


def test_requests_that_find_the_same_blocks_are_promised_them_once() -> None:
    """Each has nine tokens of prompt, eight of them cached, and three pages, two of which all of them have."""
    requests = [prompt(9) for _ in range(3)]
    cache = caching(requests[0], pages=4)
    assert [cache.admit(request, 12) for request in requests] == [1, 1, None], "tokens that are left to compute"
    assert [request.computed for request in requests] == [8, 8, 0]
    assert cache.tokens_used == 4 * BLOCK
    cache.check_invariants(requests[:2])
    cache.finished(requests[0])
    assert (requests[0].pages, requests[0].shared) == ([], 0)
    assert cache.admit(requests[2], 12) == 1
    cache.check_invariants(requests[1:])


def test_pages_of_others_and_those_that_do_not_fit_are_not_promised() -> None:
    assert caching(prompt(9), pages=2).admit(prompt(9), 12) is None
    cache = caching(prompt(9), pages=3)
    cache.occupied = 1
    assert cache.admit(prompt(9), 12) is None
    cache.occupied = 0
    assert cache.admit(prompt(9), 12) == 1


def test_changes_are_told_once_and_in_their_last_order() -> None:
    cache = EngineCache(20, BLOCK)
    cache.cached([(2, 9)])
    cache.evicted([2, 3])
    cache.cached([(1, 0), (2, 1)])
    assert cache.changes.take_new() == [2, 1, 2]
    assert cache.changes.take_events() == (((1, 0), (2, 1)), ())
    cache.evicted([2])
    assert cache.changes.take_events() == ((), (2,))
    assert (cache.changes.take_new(), cache.changes.take_events()) == ([], ((), ()))
