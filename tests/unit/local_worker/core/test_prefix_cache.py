"""The prefix cache, compared with a naive model: matched blocks are really cached, and pages are conserved."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from fairlead.token_ids import pack_ids
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from serving.blocks import chain, unpack_digests
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import BLOCK, SEED, make_request

PAGES = 12
TOKENS = st.binary(min_size=1, max_size=5 * BLOCK).map(lambda drawn: [byte % 2 for byte in drawn])


class PrefixCacheMachine(RuleBasedStateMachine):
    """The model: what each page last had written to it, which digests were announced, and those that nobody uses, the
    one that was given back first in front."""

    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixCache(PAGES, BLOCK)
        self.written: dict[int, list[int]] = {}
        self.admitted: list[Request] = []
        self.announced: dict[int, int] = {}
        self.idle: list[int] = []
        self.waiting: dict[tuple[int, ...], Request] = {}
        self.queued: list[Request] = []
        self.has_spared = False
        self.arrivals = 0

    @rule(tokens=TOKENS)
    def queue(self, tokens: list[int]) -> None:
        """A request waits, and the pages that it matches go last from now on."""
        request = make_request(tokens)
        self.cache.match(request)
        self.cache.arrived(request)
        self.queued.append(request)
        self.has_spared = True

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.queued))
        self.queued.remove(request)
        self.cache.withdrawn(request)

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        self.cache.match(data.draw(st.sampled_from(self.queued)))

    def spared(self) -> set[int]:
        """The cached blocks that a request that waits matched at its last look-up; in whole chains only."""
        cached = self.cached()
        return {
            digest
            for request in self.queued
            if set(request.digests[: request.matched_blocks]) <= cached
            for digest in request.digests[: request.matched_blocks]
        }

    @rule(target=running, tokens=TOKENS, output=st.integers(1, 9))
    def admit(self, tokens: list[int], output: int) -> Request:
        request = make_request(tokens, arrival=self.arrivals, sampling=SamplingParams(max_tokens=output))
        self.arrivals += 1
        free_before = PAGES - self.cache.referenced
        matched = self.cache.match(request)
        cached, spared = self.cached(), self.spared()
        extend = self.cache.admit(request, request.budget)
        if extend is None:
            assert -(-request.budget // BLOCK) - matched // BLOCK > free_before - matched // BLOCK or (
                -(-request.budget // BLOCK) > free_before
            )
            return request
        assert extend == len(tokens) - matched >= 1
        assert len(request.pages) == -(-request.budget // BLOCK)
        # The pages that count as computed hold exactly these tokens, whichever request wrote them.
        for index in range(matched // BLOCK):
            assert self.written[request.pages[index]] == tokens[index * BLOCK : (index + 1) * BLOCK]
        self.admitted.append(request)
        free = free_before - len(self.idle)
        self.reuse()
        evicted = max(0, -(-request.budget // BLOCK) - matched // BLOCK - free)
        gone = cached - self.cached()
        assert len(gone) == evicted
        assert not gone & spared or set(self.idle) - gone <= spared, "what a waiting request matches goes last"
        if not self.has_spared:
            assert gone == set(self.idle[:evicted]), "the block that was used longest ago goes first"
        self.idle = [digest for digest in self.idle if digest not in gone]
        return request

    def used(self) -> set[int]:
        return {digest for request in self.admitted for digest in request.digests[: request.shared]}

    def cached(self) -> set[int]:
        return {digest for digest, _ in self.cache.snapshot()}

    def reuse(self) -> None:
        used = self.used()
        self.idle = [digest for digest in self.idle if digest not in used]

    @rule(request=running, chunk=st.integers(1, 9), token=st.integers(0, 1))
    def compute(self, request: Request, chunk: int, token: int) -> None:
        if request not in self.admitted:
            return
        if request.computed == len(request.tokens) and len(request.tokens) < request.budget:
            request.tokens.append(token)
        stop = min(len(request.tokens), request.computed + chunk)
        for position in range(request.computed, stop):
            page = self.written.setdefault(request.pages[position // BLOCK], [])
            del page[position % BLOCK :]
            page.append(request.tokens[position])
        request.computed = stop
        self.cache.publish(request, request.computed)
        self.reuse()

    @rule(request=consumes(running))
    def release(self, request: Request) -> None:
        if request in self.admitted:
            self.admitted.remove(request)
            used = self.used()
            self.idle += [digest for digest in reversed(request.digests[: request.shared]) if digest not in used]
            self.cache.finished(request)

    @rule()
    def flush(self) -> None:
        self.cache.flush()
        used = {page for request in self.admitted for page in request.pages}
        assert set(self.cache._blocks) <= used, "what nobody uses is gone"
        self.idle.clear()

    @precondition(lambda self: self.admitted)
    @rule()
    def events_add_up_to_the_snapshot(self) -> None:
        cached, evicted = self.cache.changes.take_events()
        for digest in evicted:
            assert digest not in self.announced.values(), "a parent goes after its children"
            self.announced.pop(digest, None)
        for digest, parent in cached:
            assert not parent or parent in self.announced, "a parent comes before its children"
            self.announced[digest] = parent
        assert self.announced == dict(self.cache.snapshot())

    @rule(tokens=TOKENS)
    def a_request_that_waits_matches_what_a_new_one_would(self, tokens: list[int]) -> None:
        waiting = self.waiting.setdefault(tuple(tokens), make_request(tokens))
        self.cache.match(waiting)
        for prompt, known in self.waiting.items():
            assert self.cache.match(known) == self.cache.match(make_request(list(prompt)))

    @invariant()
    def conserved(self) -> None:
        self.cache.check_invariants(self.admitted)


TestPrefixCache = PrefixCacheMachine.TestCase
TestPrefixCache.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def computed(cache: PrefixCache, request: Request) -> Request:
    """`request`, admitted and wholly computed."""
    assert cache.admit(request, request.budget) is not None
    request.computed = len(request.tokens)
    cache.publish(request, request.computed)
    return request


def test_a_forged_digest_does_not_read_another_prefix() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    computed(cache, make_request([1] * 9))
    forged = make_request([2] * 9)
    forged.digests = make_request([1] * 9).digests
    assert cache.match(forged) == 0


def test_a_forged_digest_in_the_middle_of_a_chain_does_not_read_another_parent() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    one = computed(cache, make_request([1] * 4 + [3] * 5))
    computed(cache, make_request([2] * 5))
    forged = make_request([2] * 4 + [3] * 5)
    forged.digests = [forged.digests[0], one.digests[1]]
    assert cache.match(forged) == BLOCK


def test_a_forged_digest_does_not_take_the_place_of_a_block_that_a_waiting_request_has_found() -> None:
    cache, single = PrefixCache(2, BLOCK), SamplingParams(max_tokens=1)
    known = make_request([1] * (BLOCK + 1), sampling=single)
    cache.finished(computed(cache, known))
    waiting = make_request([1] * (BLOCK + 1), sampling=single)
    assert cache.match(waiting) == BLOCK
    cache.flush()
    forged = make_request([2] * (BLOCK + 1), sampling=single)
    forged.digests = list(known.digests)
    pages = list(computed(cache, forged).pages)
    cache.finished(forged)
    assert cache.match(waiting) == 0
    assert cache.admit(waiting, waiting.budget) == BLOCK + 1
    assert set(waiting.pages) == set(pages), "the forged block was evicted"


def test_at_least_one_token_is_left_to_compute() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    first = computed(cache, make_request([1] * 2 * BLOCK))
    cache.finished(first)
    assert cache.match(make_request([1] * 2 * BLOCK)) == BLOCK
    assert cache.match(make_request([1] * (2 * BLOCK + 1))) == 2 * BLOCK


def test_the_least_recently_used_leaf_goes_first() -> None:
    cache = PrefixCache(4, BLOCK)
    old, new = make_request([1] * 7), make_request([2] * 11)
    for prompt in (old.tokens, new.tokens, old.tokens):  # what is used again is the newest
        request = make_request(prompt, sampling=SamplingParams(max_tokens=1))
        cache.finished(computed(cache, request))
    cache.changes.take_events()
    order = [new.digests[1], new.digests[0], old.digests[0]]  # a chain goes from its end: what is left can be matched
    for pages, gone in ((2, order[:1]), (3, order[1:2]), (4, order[2:])):
        request = make_request([3] * (pages * BLOCK - 1), sampling=SamplingParams(max_tokens=1))
        assert cache.admit(request, request.budget) is not None
        cache.finished(request)
        assert cache.changes.take_events() == ((), tuple(gone))


def test_digests_of_generated_blocks_continue_the_chain() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    request = make_request([1, 0, 1], sampling=SamplingParams(max_tokens=10))
    assert cache.admit(request, request.budget) is not None
    request.tokens += [0, 1, 1, 0, 1, 1]
    request.computed = len(request.tokens)
    cache.publish(request, request.computed)
    assert request.digests == make_request(request.tokens).digests
    assert cache.match(make_request([*request.tokens, 1])) == 2 * BLOCK
    assert request.chain_seed == SEED


def test_a_prompt_whose_only_matched_block_was_evicted_matches_nothing() -> None:
    cache = PrefixCache(2, BLOCK)
    single = SamplingParams(max_tokens=1)
    cache.finished(computed(cache, make_request([1] * BLOCK, sampling=single)))
    waiting = make_request([1] * (BLOCK + 1))
    assert cache.match(waiting) == BLOCK
    other = make_request([2] * (2 * BLOCK - 1), sampling=single)
    assert cache.admit(other, other.budget) is not None
    assert cache.match(waiting) == 0


def test_a_released_request_has_no_pages_and_shares_none() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    request = computed(cache, make_request([1] * 9))
    assert (len(request.pages), request.shared) != (0, 0)
    cache.finished(request)
    assert (request.pages, request.shared) == ([], 0)
    assert cache.tokens_used == 0


def test_a_request_gets_the_pages_that_it_lacks_or_none_of_them() -> None:
    cache = PrefixCache(4, BLOCK)
    single = SamplingParams(max_tokens=1)
    cache.finished(computed(cache, make_request([1] * (2 * BLOCK - 1), sampling=single)))  # one idle page
    request = make_request([2] * 3)
    assert cache.admit(request, 3) == 3
    for tokens, pages in ((BLOCK, 1), (BLOCK + 1, 2), (4 * BLOCK, 4), (2 * BLOCK, 4)):
        assert cache.extend(request, tokens)
        assert len(request.pages) == pages
        cache.check_invariants([request])
    assert not cache.extend(request, 4 * BLOCK + 1)
    assert (len(request.pages), cache.tokens_used) == (4, 4 * BLOCK)
    cache.check_invariants([request])


def test_a_request_is_admitted_if_its_pages_just_fit() -> None:
    cache, single = PrefixCache(4, BLOCK), SamplingParams(max_tokens=1)
    shared = computed(cache, make_request([1] * 2 * BLOCK, sampling=single))  # of its three pages two are published
    for blocks, extend in ((4, None), (3, BLOCK)):
        request = make_request([1] * (blocks * BLOCK), sampling=single)
        assert cache.admit(request, blocks * BLOCK) == extend
    cache.check_invariants([shared, request])
    assert cache.tokens_used == 4 * BLOCK


def test_blocks_that_became_available_are_told_once() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    request = computed(cache, make_request([1] * (2 * BLOCK + 1)))
    computed(cache, make_request([1] * (2 * BLOCK + 1)))
    assert cache.changes.take_new() == request.digests[:2]
    assert cache.changes.take_new() == []


def test_a_block_whose_digest_another_block_has_stays_private() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    known = computed(cache, make_request([1] * (2 * BLOCK + 1)))
    before = cache.snapshot()
    forged = make_request([2] * (2 * BLOCK + 1))
    forged.digests = list(known.digests)
    computed(cache, forged)
    assert (forged.shared, cache.snapshot()) == (0, before)
    cache.check_invariants([known, forged])
    cache.finished(forged)
    assert cache.tokens_used == len(known.pages) * BLOCK
    assert cache.match(make_request([1] * (2 * BLOCK + 1))) == 2 * BLOCK


def test_nothing_is_skipped_of_a_prompt_whose_scores_are_requested() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    computed(cache, make_request([1] * 9))
    scored = make_request([1] * 9, sampling=SamplingParams(max_tokens=1, prompt_logprobs=0))
    assert cache.match(scored) == 0
    assert cache.admit(scored, scored.budget) == 9
    assert (scored.computed, scored.shared) == (0, 0)


def test_generated_blocks_after_a_public_prefix_belong_to_the_requests_own_scope() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    request = make_request([1] * BLOCK, sampling=SamplingParams(max_tokens=2 * BLOCK))
    request.public_blocks, request.chain_seed = 1, 99
    assert cache.admit(request, request.budget) is not None
    request.tokens += [2] * 2 * BLOCK
    cache.publish(request, 3 * BLOCK)
    assert request.digests == [
        *make_request([1] * BLOCK).digests,
        *unpack_digests(chain(pack_ids([2] * 2 * BLOCK), BLOCK, 99)),
    ]


def test_blocks_that_come_and_go_between_two_reports_are_evicted_from_their_end() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    request = computed(cache, make_request([1] * (2 * BLOCK + 1)))
    cache.finished(request)
    cache.flush()
    assert cache.changes.take_events() == ((), tuple(request.digests[::-1]))
    assert cache.changes.take_events() == ((), ())


def fill(cache: PrefixCache, tokens: int, token: int) -> None:
    """Compute and release a prompt of equal tokens that takes as many pages as `tokens` need."""
    prompt = make_request([token] * (tokens - 1), sampling=SamplingParams(max_tokens=1))
    cache.finished(computed(cache, prompt))


def test_blocks_that_match_a_waiting_request_are_evicted_last() -> None:
    cache = PrefixCache(6, BLOCK)
    fill(cache, 2 * BLOCK, 1)
    waiting = make_request([1] * BLOCK + [5] * BLOCK)
    assert cache.match(waiting) == BLOCK
    cache.arrived(waiting)
    for token in (2, 3, 4):  # each of them takes two pages, so that two others are evicted
        fill(cache, 2 * BLOCK + 1, token)
    assert cache.match(waiting) == BLOCK
    fill(cache, 6 * BLOCK, 5)
    assert cache.match(waiting) == 0, "running requests get all memory that they need"


def test_blocks_that_no_request_waits_for_any_longer_are_evicted_first() -> None:
    cache = PrefixCache(4, BLOCK)
    fill(cache, 2 * BLOCK, 1)
    waiting = make_request([1] * BLOCK + [5] * BLOCK)
    cache.match(waiting)
    cache.arrived(waiting)
    fill(cache, 2 * BLOCK, 2)
    fill(cache, 3 * BLOCK, 3)  # the page of the waiting request is passed over, and the next one evicted
    assert [cache.match(make_request([token] * 2 * BLOCK)) for token in (1, 2, 3)] == [BLOCK, 0, BLOCK]
    cache.withdrawn(waiting)
    fill(cache, 2 * BLOCK + 1, 4)
    assert [cache.match(make_request([token] * 2 * BLOCK)) for token in (1, 3, 4)] == [0, BLOCK, BLOCK]


def test_blocks_that_come_to_match_a_waiting_request_are_evicted_last_too() -> None:
    cache = PrefixCache(6, BLOCK)
    waiting = make_request([1] * 2 * BLOCK + [5] * BLOCK)
    cache.match(waiting)
    cache.arrived(waiting)
    for blocks in (1, 2):
        fill(cache, (blocks + 1) * BLOCK, 1)
        assert cache.match(waiting) == blocks * BLOCK
        cache.check_invariants([])
    for token in (2, 3, 4):
        fill(cache, 2 * BLOCK + 1, token)
    assert cache.match(waiting) == 2 * BLOCK


def test_blocks_that_match_a_request_that_does_not_wait_are_not_spared() -> None:
    cache = PrefixCache(4, BLOCK)
    fill(cache, 2 * BLOCK, 1)
    fill(cache, 2 * BLOCK, 2)
    probe = make_request([1] * 2 * BLOCK)
    assert cache.match(probe) == BLOCK
    fill(cache, 3 * BLOCK, 3)
    assert [cache.match(make_request([token] * 2 * BLOCK)) for token in (1, 2)] == [0, BLOCK]


def test_a_spared_prefix_is_in_use_again_and_then_like_any_other() -> None:
    cache = PrefixCache(4, BLOCK)
    fill(cache, 2 * BLOCK, 1)
    waiting = make_request([1] * 2 * BLOCK, sampling=SamplingParams(max_tokens=1))
    cache.match(waiting)
    cache.arrived(waiting)
    fill(cache, 2 * BLOCK, 2)
    fill(cache, 3 * BLOCK, 3)  # the prefix of the waiting request is passed over
    computed(cache, waiting)
    cache.check_invariants([waiting])
    cache.finished(waiting)
    fill(cache, 2 * BLOCK, 4)
    fill(cache, 3 * BLOCK, 5)
    assert [cache.match(make_request([token] * 2 * BLOCK)) for token in (1, 4)] == [0, BLOCK]


def test_the_whole_of_a_long_prefix_is_evicted_first_when_nobody_waits_for_it() -> None:
    cache = PrefixCache(8, BLOCK)
    fill(cache, 4 * BLOCK, 1)
    waiting = make_request([1] * 3 * BLOCK + [5] * BLOCK)
    assert cache.match(waiting) == 3 * BLOCK
    cache.arrived(waiting)
    fill(cache, 2 * BLOCK, 2)
    fill(cache, 5 * BLOCK, 3)  # the three blocks are passed over
    assert cache.match(waiting) == 3 * BLOCK
    cache.withdrawn(waiting)
    fill(cache, 4 * BLOCK, 4)
    assert [cache.match(make_request([token] * 6 * BLOCK)) for token in (1, 3)] == [0, 4 * BLOCK]


def test_a_prefix_stays_spared_for_those_that_still_wait_for_it() -> None:
    cache = PrefixCache(8, BLOCK)
    fill(cache, 4 * BLOCK, 1)
    long, short = make_request([1] * 3 * BLOCK + [5] * BLOCK), make_request([1] * BLOCK + [5] * BLOCK)
    for waiting in (long, short):
        cache.match(waiting)
        cache.arrived(waiting)
    fill(cache, 2 * BLOCK, 2)
    fill(cache, 5 * BLOCK, 3)  # the three blocks are passed over
    cache.withdrawn(long)
    fill(cache, 4 * BLOCK, 4)
    assert [cache.match(make_request([token] * 6 * BLOCK)) for token in (1, 3)] == [BLOCK, 3 * BLOCK]


def test_strict_paper_evicts_what_was_used_longest_ago() -> None:
    cache = PrefixCache(4, BLOCK, strict_paper=True)
    fill(cache, 2 * BLOCK, 1)
    waiting = make_request([1] * BLOCK + [5] * BLOCK)
    cache.match(waiting)
    cache.arrived(waiting)
    fill(cache, 2 * BLOCK, 2)
    fill(cache, 4 * BLOCK, 3)
    assert cache.match(waiting) == 0


def test_a_block_is_underway_from_admission_until_it_is_cached_or_its_request_leaves() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    request, other = make_request([1] * 3 * BLOCK), make_request([1] * 2 * BLOCK + [2] * BLOCK)
    for publishes in (False, True):
        cache.match(other)
        assert not cache.is_underway(other)
        assert cache.admit(request, request.budget) is not None
        assert cache.is_underway(other)
        if publishes:
            cache.publish(request, BLOCK)
            assert not cache.is_underway(other), "the block that it missed first is there"
            cache.match(other)
            assert cache.is_underway(other), "the next one is not"
            cache.publish(request, 2 * BLOCK)
            cache.match(other)
            assert not cache.is_underway(other), "what they share is there"
        cache.finished(request)
        assert not cache.is_underway(other)


def test_nobody_waits_for_a_block_that_stays_private() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    known = computed(cache, make_request([1] * (2 * BLOCK + 1)))
    forged = make_request([2] * (2 * BLOCK + 1))
    forged.digests = [known.digests[0], make_request([2] * 2 * BLOCK).digests[1]]
    other = make_request([1] * BLOCK + [2] * (BLOCK + 1))
    other.digests = list(forged.digests)
    cache.match(other)
    assert cache.admit(forged, forged.budget) is not None
    assert cache.is_underway(other)
    cache.publish(forged, 2 * BLOCK)
    assert not cache.is_underway(other)


def test_a_block_that_is_computed_again_is_not_underway_afterwards() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    for _ in range(2):  # the second time the last block is cached already, but a token has to be computed
        request = computed(cache, make_request([1] * 2 * BLOCK))
        cache.check_invariants([request])
        cache.finished(request)
        cache.check_invariants([])


def test_the_match_of_a_request_that_waits_grows_with_what_is_cached() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    waiting = make_request([1] * (3 * BLOCK + 1))
    for blocks in (1, 1, 2, 2):
        computed(cache, make_request([1] * (blocks * BLOCK + 1), sampling=SamplingParams(max_tokens=1)))
        assert cache.match(waiting) == blocks * BLOCK
        assert waiting.matched_blocks == blocks


def test_a_forged_digest_after_a_block_that_is_not_cached_reads_nothing() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    known = computed(cache, make_request([1] * BLOCK + [3]))
    forged = make_request([2] * BLOCK + [1] * BLOCK + [3], sampling=SamplingParams(max_tokens=1))
    forged.digests[1] = known.digests[0]
    assert cache.match(forged) == 0
    assert cache.admit(forged, forged.budget) == len(forged.tokens)


def test_a_match_shrinks_to_the_blocks_that_were_not_evicted() -> None:
    cache, single = PrefixCache(4, BLOCK), SamplingParams(max_tokens=1)
    cache.finished(computed(cache, make_request([1] * 2 * BLOCK, sampling=single)))
    waiting = make_request([1] * (2 * BLOCK + 1))
    assert cache.match(waiting) == 2 * BLOCK
    other = make_request([2] * (3 * BLOCK - 1), sampling=single)
    assert cache.admit(other, other.budget) is not None
    assert cache.match(waiting) == BLOCK


def test_blocks_are_published_as_they_become_full() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    request = make_request([1] * (3 * BLOCK + 1))
    assert cache.admit(request, request.budget) is not None
    for tokens in (BLOCK - 1, BLOCK, 2 * BLOCK, 3 * BLOCK + 1):
        cache.publish(request, tokens)
        assert request.shared == tokens // BLOCK
        assert cache.match(make_request([1] * (3 * BLOCK + 1))) == tokens // BLOCK * BLOCK


def test_the_pages_of_its_own_prefix_are_no_room_for_the_rest_of_a_request() -> None:
    cache = PrefixCache(4, BLOCK)
    cache.finished(computed(cache, make_request([1] * 2 * BLOCK, sampling=SamplingParams(max_tokens=1))))
    assert cache.admit(make_request([1] * (2 * BLOCK + 1)), 4 * BLOCK + 1) is None
    cache.check_invariants([])


def test_a_request_is_admitted_if_the_rest_of_its_idle_prefix_just_fits() -> None:
    cache = PrefixCache(4, BLOCK)
    fill(cache, 3 * BLOCK, 1)
    request = make_request([1] * (2 * BLOCK + 1))
    assert cache.admit(request, 4 * BLOCK) == 1
    cache.check_invariants([request])


def test_nobody_waits_for_the_last_block_of_its_prompt() -> None:
    cache = PrefixCache(PAGES, BLOCK)
    computed(cache, make_request([1] * (BLOCK + 1), sampling=SamplingParams(max_tokens=1)))
    running = make_request([1] * (2 * BLOCK + 1))
    assert cache.admit(running, running.budget) is not None
    waiting = make_request([1] * 2 * BLOCK)
    assert cache.match(waiting) == BLOCK, "of the last block a token is computed in any case"
    assert not cache.is_underway(waiting)
