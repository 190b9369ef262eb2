"""What an interaction alone has used is evicted before everything else once it has ended."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from tests.unit.local_worker.core.test_fair_pages import request_of
from tests.unit.local_worker.engine.driving import BLOCK

PAGES = 24
CLIENTS = [("t0", "t0/a"), ("t0", "t0/b"), ("t1", "t1/c")]


def call(client: tuple[str, ...], interaction: str, blocks: list[int], ends: bool = False) -> Request:
    request = request_of(client, blocks)
    request.interaction, request.ends_interaction = interaction, ends
    return request


def begin(cache: PrefixCache, request: Request) -> bool:
    if cache.admit(request, request.budget) is None:
        return False
    cache.publish(request, len(request.tokens))
    return True


def serve(cache: PrefixCache, request: Request) -> int:
    """Let a request run alone and end; return the number of blocks that it finds."""
    found = cache.match(request) // BLOCK
    assert begin(cache, request)
    cache.finished(request)
    cache.check_invariants([])
    return found


class Naive:
    """Who has used which cached digest, and which digests nobody needs."""

    def __init__(self) -> None:
        self.users: dict[int, set[tuple[str, str] | None]] = {}
        self.unneeded: set[int] = set()

    def used(self, request: Request, cached: set[int]) -> None:
        for digest in request.digests:
            if digest in cached:
                user = (request.client, request.interaction) if request.interaction else None
                self.users.setdefault(digest, set()).add(user)
                self.unneeded.discard(digest)

    def ended(self, request: Request, running: list[Request]) -> None:
        in_use = {digest for each in running for digest in each.digests}
        for digest, users in self.users.items():
            if users == {(request.client, request.interaction)}:
                users.add(None)
                if digest not in in_use:
                    self.unneeded.add(digest)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_nothing_else_is_evicted_while_there_is_what_an_ended_interaction_alone_has_used(seed: int) -> None:
    random, cache, naive = Random(seed), PrefixCache(PAGES, BLOCK), Naive()
    running: list[Request] = []
    for _ in range(200):
        if running and random.random() < 0.5:
            request = running.pop(random.randrange(len(running)))
            if request.ends_interaction and random.random() < 0.1:
                cache.preempted(request)
                cache.withdrawn(request)
            else:
                cache.finished(request)
                if request.ends_interaction and request.interaction:
                    naive.ended(request, running)
        else:
            blocks = [random.randint(1, 3) for _ in range(random.randint(1, 6))]
            interaction = random.choice(["", "i", "j", "k"])
            request = call(random.choice(CLIENTS), interaction, blocks, random.random() < 0.4)
            if not begin(cache, request):
                continue
            running.append(request)
            cached = {digest for digest, _ in cache.snapshot()}
            matched = {*request.digests[: cache.match(request) // BLOCK]}
            gone = naive.users.keys() - cached
            assert not (gone - naive.unneeded and (naive.unneeded - matched) & cached), "another one went before"
            for digest in gone:
                del naive.users[digest]
            naive.unneeded &= cached
            naive.used(request, cached)
        cache.check_invariants(running)


def flood(cache: PrefixCache, blocks: int, client: tuple[str, ...] = CLIENTS[2]) -> None:
    for number in range(blocks):
        serve(cache, call(client, "", [100 + number]))


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("taker", [CLIENTS[0], CLIENTS[2]])
def test_an_ended_interaction_gives_way_to_one_that_paused_before_it(taker: tuple[str, ...], ends: bool) -> None:
    cache, pausing = PrefixCache(PAGES, BLOCK), [*range(1, 12)]
    serve(cache, call(CLIENTS[0], "pauses", pausing))
    serve(cache, call(CLIENTS[0], "ended", [*range(12, 22)], ends))
    flood(cache, PAGES // 2, taker)
    assert (serve(cache, call(CLIENTS[0], "pauses", pausing)) == len(pausing)) == ends


def test_pages_that_others_have_used_too_are_kept_when_an_interaction_ends() -> None:
    system, own = [1, 2, 3], [4, 5, 6]
    for other in (CLIENTS[0], CLIENTS[1]):
        cache = PrefixCache(PAGES, BLOCK)
        serve(cache, call(other, "other", system))
        serve(cache, call(CLIENTS[0], "ended", system + own, ends=True))
        flood(cache, PAGES)
        assert serve(cache, call(CLIENTS[0], "new", system + own)) == len(system)


def test_an_ended_interaction_costs_nothing_of_its_clients_part() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    serve(cache, call(CLIENTS[0], "ended", [1, 2, 3, 4, 5, 6], ends=True))
    cache.advance(10.0)
    assert sum(share.pages for share in cache.report().clients) == 0


def test_who_goes_on_after_the_declared_end_finds_what_nobody_has_needed() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    serve(cache, call(CLIENTS[0], "ended", [1, 2, 3, 4], ends=True))
    flood(cache, 6)
    assert serve(cache, call(CLIENTS[0], "ended", [1, 2, 3, 4, 5])) == 4


def test_a_preempted_last_call_has_not_ended_its_interaction() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    last = call(CLIENTS[0], "i", [1, 2, 3, 4], ends=True)
    assert begin(cache, last)
    cache.preempted(last)
    flood(cache, PAGES)
    assert cache.match(last) == 4 * BLOCK
