"""The fair prefix cache: a client's hits are at least those of a private cache of its part, whatever others do."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.core.page_account import MOST_ENDS
from local_worker.core.page_tree import MOST_QUIET, WINDOW_SECONDS, PageTree
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from serving.cost import WEIGHT_ONE
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import BLOCK, make_request

PAGES = 48
ME = ("t0", "t0/me")
# Path -> weight at the highest level, and below it. My tenant's part is half of the cache, and mine two thirds of that.
WEIGHTS: dict[tuple[str, ...], tuple[int, int]] = {
    ME: (2, 2),
    ("t0", "t0/other"): (2, 1),
    ("t1", "t1/a"): (1, 1),
    ("t1", "t1/b"): (1, 1),
    ("t2", "t2/a"): (1, 1),
}
MY_PART = PAGES * 2 // 4 * 2 // 3


def request_of(path: tuple[str, ...], blocks: Sequence[int], more: int = 1) -> Request:
    """A request whose prompt has `blocks`, each of one repeated token, and `more` tokens after them."""
    request = make_request([token for block in blocks for token in [block] * BLOCK] + [0] * more)
    request.path, request.client = path, path[-1]
    highest, below = WEIGHTS.get(path, (1, 1))
    request.weight, request.user_weight = highest * WEIGHT_ONE, below * WEIGHT_ONE
    request.sampling = SamplingParams(max_tokens=1)
    request.budget = len(request.tokens) + 1
    return request


class PrivateCache:
    """A cache of `pages` pages for one client, least recently used first: the naive model."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._digests: list[int] = []  # the one used longest ago comes first

    def use(self, request: Request, pages: int) -> int:
        """Serve `request`, which takes `pages` pages; return the number of blocks that it finds."""
        found = 0
        while found < len(request.digests) and request.digests[found] in self._digests:
            found += 1
        others = [digest for digest in self._digests if digest not in request.digests]
        self._digests = others[max(0, len(others) + pages - self._pages) :] + request.digests[::-1]
        return found


class Crowd:
    """A cache and the requests of others, whose running requests stay within the parts of their accounts."""

    def __init__(self) -> None:
        self.cache = PrefixCache(PAGES, BLOCK)
        self.running: list[Request] = []
        self._now = self._mine_at = 0.0

    def part(self, path: tuple[str, ...]) -> float:
        tenants = {each[0]: WEIGHTS[each][0] for each in WEIGHTS}
        users = {each: WEIGHTS[each][1] for each in WEIGHTS if each[0] == path[0]}
        return PAGES * tenants[path[0]] / sum(tenants.values()) * (users[path] / sum(users.values()) if path[1:] else 1)

    def begin(self, request: Request) -> bool:
        """Let another's request run if its accounts then stay within their parts."""
        for depth in (1, 2):
            here = [each for each in (*self.running, request) if each.path[:depth] == request.path[:depth]]
            part = self.part(request.path) if depth == 2 else PAGES * WEIGHTS[request.path][0] / 4
            if sum(self.cache.pages_for(each.budget) for each in here) > part:
                return False
        if self.cache.admit(request, request.budget) is None:
            return False
        self.cache.publish(request, len(request.tokens))
        self.running.append(request)
        return True

    def end(self, request: Request) -> None:
        self.running.remove(request)
        self.cache.finished(request)

    def ask(self, request: Request) -> int:
        """Let my request run and end; return the number of blocks that it finds."""
        self._mine_at = self._now
        left = self.cache.admit(request, request.budget)
        assert left is not None, "a request within its client's part enters"
        self.cache.publish(request, len(request.tokens))
        self.cache.check_invariants([*self.running, request])
        self.cache.finished(request)
        return (len(request.tokens) - left) // BLOCK

    def wait(self, seconds: float) -> None:
        """Let time pass, but not so much that my window ends."""
        self._now = min(self._now + seconds, self._mine_at + WINDOW_SECONDS - 1)
        self.cache.advance(self._now)


OTHERS = [path for path in WEIGHTS if path != ME]


def blocks_of(random: Random) -> list[int]:
    """Blocks of which the first ones are common, and the others my own or of a flood."""
    first = random.randint(11, 12) if random.random() < 0.3 else random.randint(20, 10_000)
    return [1, 2, 3][: random.randint(0, 3)] + [first + each for each in range(random.randint(0, 3))]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_clients_hits_are_at_least_those_of_a_private_cache_of_its_part(seed: int) -> None:
    random, crowd, private = Random(seed), Crowd(), PrivateCache(MY_PART)
    flood = random.random()
    for _ in range(200):
        if random.random() > flood:
            chain = [1, 2, 3][: random.randint(0, 3)] + [11 + random.randint(0, 3), 12, 13][: random.randint(0, 3)]
            request = request_of(ME, chain)
            alone = private.use(request, crowd.cache.pages_for(request.budget))
            assert crowd.ask(request) >= alone
        elif random.random() < 0.1:
            crowd.wait(random.uniform(1, 40))
        elif crowd.running and random.random() < 0.5:
            crowd.end(random.choice(crowd.running))
        else:
            request = request_of(random.choice(OTHERS), blocks_of(random))
            request.interaction, request.ends_interaction = random.choice(["", "i", "j"]), random.random() < 0.5
            crowd.begin(request)
        crowd.cache.check_invariants(crowd.running)


def serve(cache: PrefixCache, path: tuple[str, ...], blocks: Sequence[int], *beside: Request | None) -> int:
    """Let a request run and end `beside` others; return the number of blocks that it finds."""
    request = request_of(path, blocks)
    left = cache.admit(request, request.budget)
    assert left is not None
    cache.publish(request, len(request.tokens))
    cache.finished(request)
    cache.check_invariants([each for each in beside if each is not None])
    return (len(request.tokens) - left) // BLOCK


def flooded(
    path: tuple[str, ...], blocks: Sequence[int], flood: Sequence[tuple[tuple[str, ...], Sequence[int]]]
) -> int:
    """Return how many of `blocks`, which `path` uses before a flood, it finds after it."""
    cache = PrefixCache(12, BLOCK)
    serve(cache, path, blocks)
    for other, chain in flood:
        serve(cache, other, chain)
    return serve(cache, path, blocks)


QUIET = [1, 2, 3, 4, 5, 6]


def test_a_polluter_that_never_repeats_itself_costs_a_client_nothing_of_its_part() -> None:
    flood = [(("f",), [100 + number, 200, 201]) for number in range(50)]
    assert flooded(("q",), QUIET, flood) == 6, "half of the pages"
    assert flooded(("q",), [*QUIET, 7, 8], flood) == 6, "what is beyond the part goes, from the end"


def test_a_scanner_that_repeats_more_than_the_cache_holds_costs_a_client_nothing_of_its_part() -> None:
    assert flooded(("q",), QUIET, [(("f",), [100 + number % 15]) for number in range(60)]) == 6


def test_a_tenant_as_twenty_users_has_one_part() -> None:
    flood = [(("t", f"t/{number % 20}"), [100 + number]) for number in range(60)]
    assert flooded(("q", "q/q"), QUIET, flood) == 6
    assert flooded(("q/q",), QUIET, [(path[1:], blocks) for path, blocks in flood]) <= 1, (
        "of 21 users, a part is no page"
    )


def test_a_weight_is_a_part() -> None:
    flood = [(("t1", "t1/a"), [100 + number, 200, 201]) for number in range(50)]
    assert flooded(ME, [1, 2, 3, 4, 5, 6, 7, 8, 9], flood) == 8, "two thirds"


def test_a_client_that_comes_with_another_weight_has_another_part(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PrefixCache(12, BLOCK)
    serve(cache, ("q",), QUIET)
    monkeypatch.setitem(WEIGHTS, ("q",), (3, 3))
    serve(cache, ("q",), [*QUIET, 7, 8, 9])
    for number in range(50):
        serve(cache, ("f",), [100 + number, 200])
    assert serve(cache, ("q",), [*QUIET, 7, 8, 9]) == 9, "three quarters"


def test_a_client_whose_weight_falls_gives_pages_though_its_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It pays for six pages and another one for four, which is more for its weight until the request comes."""
    cache = PrefixCache(12, BLOCK)
    monkeypatch.setitem(WEIGHTS, ("q",), (3, 3))
    serve(cache, ("q",), QUIET)
    serve(cache, ("r",), [11, 12, 13, 14])
    monkeypatch.setitem(WEIGHTS, ("q",), (1, 1))
    waiting = request_of(("q",), QUIET)
    cache.arrived(waiting)
    serve(cache, ("f",), [21, 22])
    cache.withdrawn(waiting)
    assert serve(cache, ("r",), [11, 12, 13, 14]) == 4


def test_of_clients_that_pay_for_as_much_the_one_whose_request_ended_first_gives_pages() -> None:
    cache = PrefixCache(12, BLOCK)
    requests = [request_of((client,), [number, 10 * number, 100 * number]) for number, client in enumerate("ab", 1)]
    for request in requests:
        assert cache.admit(request, request.budget) is not None
        cache.publish(request, len(request.tokens))
    for request in reversed(requests):
        cache.finished(request)
    serve(cache, ("f",), [21, 22, 23, 24, 25, 26])
    assert [cache.match(request) // BLOCK for request in requests] == [3, 2]


def test_a_prefix_that_others_use_stays_for_all_and_leaves_room_for_more() -> None:
    """Who uses a common prefix pays its part of it: it stays, and others cannot make anybody else pay for it."""
    cache = PrefixCache(12, BLOCK)
    common, own = [1, 2, 3, 4], [11, 12, 13]
    serve(cache, ("q",), [*common, *own])
    serve(cache, ("f",), common)
    serve(cache, ("q",), [*common, *own])
    for number in range(50):
        serve(cache, ("f",), [100 + number, 200])
        serve(cache, ("f",), common)
    assert serve(cache, ("q",), [*common, *own]) == 7, "half of the common four, and its own, are its part"
    assert serve(cache, ("f",), common) == 4


def test_users_that_keep_everybodys_prefix_pay_for_it_and_spoil_nothing_else() -> None:
    cache = PrefixCache(12, BLOCK)
    serve(cache, ("q",), QUIET)
    for number in range(60):  # they touch what the quiet client computed, and flood
        serve(cache, (f"f{number % 3}",), QUIET[:3])
        serve(cache, (f"f{number % 3}",), [100 + number])
    assert serve(cache, ("q",), QUIET) >= 3 + 2, "its part are three pages: a quarter of the common three, and more"


def test_the_pages_of_those_that_have_left_go_first_and_their_parts_are_free() -> None:
    cache = PrefixCache(12, BLOCK)
    serve(cache, ("q",), QUIET)
    serve(cache, ("r",), [21, 22])
    cache.advance(WINDOW_SECONDS / 2)
    serve(cache, ("r",), [21, 22])
    cache.advance(WINDOW_SECONDS)
    for number in range(6):
        serve(cache, ("f",), [100 + number, 200])
    assert serve(cache, ("r",), [21, 22]) == 2
    assert serve(cache, ("q",), QUIET) == 0


def test_names_that_are_made_up_take_bounded_memory_and_end_no_part_of_another_tenant() -> None:
    tree = PageTree({}, {})

    def ask(path: tuple[str, ...]) -> None:
        tree.ended(tree.arrived(request_of(path, []), path))

    ask(ME)
    for number in range(3 * MOST_QUIET):
        ask(("t1", f"t1/{number}"))
    here = [account.path for account in tree]
    assert len(here) <= MOST_QUIET
    assert ME in here
    assert ("t1", f"t1/{3 * MOST_QUIET - 1}") in here, "those that were here longest ago leave"
    tree.check_invariants()


def test_who_returns_before_others_needed_its_pages_finds_them() -> None:
    cache = PrefixCache(12, BLOCK)
    serve(cache, ("q",), QUIET)
    cache.advance(10 * WINDOW_SECONDS)
    serve(cache, ("f",), [100])
    assert serve(cache, ("q",), QUIET) == 6


def running(cache: PrefixCache, path: tuple[str, ...], blocks: Sequence[int]) -> Request | None:
    request = request_of(path, blocks)
    return request if cache.admit(request, request.budget) is not None else None


def test_requests_that_run_together_leave_others_their_parts() -> None:
    cache = PrefixCache(12, BLOCK)
    for _ in range(2):  # a client whose requests find their prompts cached
        serve(cache, ("q",), [1, 2, 3, 4, 5])
    begun = [running(cache, ("f",), [100 + number, 200]) for number in range(4)]
    assert [request is not None for request in begun] == [True, True, False, False], "three pages for each"
    assert serve(cache, ("q",), [1, 2, 3, 4, 5], *begun) == 5


def test_prompts_that_were_sent_once_do_not_hide_that_later_ones_are_repeated() -> None:
    cache = PrefixCache(12, BLOCK)
    for number in range(MOST_ENDS):
        serve(cache, ("q",), [1000 + number])
    for number in range(4 * MOST_ENDS):  # more than the cache holds: none of them is found
        serve(cache, ("q",), [2000 + number % MOST_ENDS])
    begun = [running(cache, ("f",), [100 + number, 200]) for number in range(4)]
    assert [request is not None for request in begun] == [True, True, False, False], "it may need what is in its part"


def test_the_only_request_of_an_account_runs_whatever_its_part_is() -> None:
    cache = PrefixCache(12, BLOCK)
    for _ in range(2):
        serve(cache, ("q",), QUIET)
    large = running(cache, ("f",), [*range(100, 110)])
    assert large is not None, "it could never run otherwise"
    assert running(cache, ("f",), [110, 111]) is None
    cache.check_invariants([large])


def test_of_the_requests_of_a_tenant_only_the_first_may_go_beyond_its_part() -> None:
    cache = PrefixCache(12, BLOCK)
    for _ in range(2):
        serve(cache, ("q", "q/q"), QUIET[:5])
    begun = [running(cache, ("t", f"t/{number}"), [100 + number, 200]) for number in range(4)]
    assert [request is not None for request in begun] == [True, True, False, False]
    assert serve(cache, ("q", "q/q"), QUIET[:5], *begun) == 5


def test_leaving_requests_make_room_as_far_as_parts_allow() -> None:
    cache = PrefixCache(12, BLOCK)
    for _ in range(2):
        serve(cache, ("q",), QUIET)
    one = running(cache, ("f",), [100, 101, 102])
    assert one is not None
    entering = request_of(("f",), [110, 111, 112, 113])
    assert cache.fits(entering, entering.budget, []) is None
    assert cache.fits(entering, entering.budget, [one]) == [one]
    other = request_of(("g",), [110, 111])
    assert cache.fits(other, other.budget, [one]) == [], "it is the only one of its client"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_who_fits_when_others_leave_enters_when_they_have_left(seed: int) -> None:
    random, cache, begun = Random(seed), PrefixCache(PAGES, BLOCK), list[Request]()
    most_blocks, now = random.choice([3, 12, PAGES - 4]), 0.0
    for _ in range(60):
        if random.random() < 0.1:
            now += random.choice([1, WINDOW_SECONDS / 2, WINDOW_SECONDS])
            cache.advance(now)
        blocks = [*blocks_of(random), *range(10_000, 10_000 + random.randint(0, most_blocks))]
        entering = request_of(random.choice([*WEIGHTS]), blocks, random.randint(1, 2 * BLOCK))
        entering.client, entering.interaction = "/".join(entering.path), random.choice(["", "a", "b"])
        entering.ends_interaction = bool(entering.interaction) and random.random() < 0.5
        cache.arrived(entering)
        leaving = cache.fits(entering, entering.budget, random.sample(begun, len(begun)))
        for request in leaving or ():
            begun.remove(request)
            cache.preempted(request)
        has_entered = cache.admit(entering, entering.budget) is not None
        assert has_entered or leaving is None
        if has_entered:
            begun.append(entering)
            cache.publish(entering, random.randrange(entering.computed, len(entering.tokens)))
        else:
            cache.withdrawn(entering)
        for request in leaving or ():
            cache.withdrawn(request)
        for request in [each for each in begun if random.random() < 0.1]:
            begun.remove(request)
            cache.finished(request)
        cache.check_invariants(begun)


def test_pages_that_their_client_never_finds_again_hold_nobody_up() -> None:
    cache = PrefixCache(12, BLOCK)
    for number in range(6):
        serve(cache, ("q",), [1000 + number, 1])
    begun = [running(cache, ("f",), [100 + number, 200]) for number in range(4)]
    assert None not in begun
