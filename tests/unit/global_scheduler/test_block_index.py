"""The block index against one set of blocks per worker, under the histories that real workers tell."""

from functools import cache

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.token_ids import pack_ids
from global_scheduler.core.block_index import MAX_SPARED, BlockIndex
from serving import blocks
from serving.blocks import BlockRun, pack_digests, runs, unpack_digests

SLOTS = 3
ROOM = 10_000
Path = tuple[int, ...]
PATHS = st.binary(max_size=7).map(lambda drawn: tuple(1 + byte % 3 for byte in drawn))


def chain(path: Path) -> tuple[int, ...]:
    """The digests of blocks of one token each."""
    return unpack_digests(packed(path))


def longest(index: BlockIndex, digests: bytes, eligible: int) -> tuple[int, int]:
    """The workers with the longest match, and its length."""
    return index.matches(digests, eligible)[-1]


@cache
def packed(path: Path) -> bytes:
    return blocks.chain(pack_ids(path), 1, seed=1)


class NaiveWorker:
    """Blocks that the worker holds, and those that requests on their way there announce."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}  # digest -> parent
        self.expected: list[Path] = []

    def has(self, digest: int) -> bool:
        return digest in self.held or any(digest in chain(path) for path in self.expected)

    def matches(self, path: Path) -> int:
        missing = [n for n, digest in enumerate(chain(path)) if not self.has(digest)]
        return missing[0] if missing else len(path)


class IndexMachine(RuleBasedStateMachine):
    """Requests are dispatched, withdrawn or run; workers generate blocks, evict leaves, die and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.index = BlockIndex(ROOM)
        self.workers = [NaiveWorker() for _ in range(SLOTS)]
        self.generated = 100

    @rule(slot=st.integers(0, SLOTS - 1), path=PATHS)
    def dispatched(self, slot: int, path: Path) -> None:
        assert self.index.expect(slot, packed(path))
        self.workers[slot].expected.append(path)

    def outstanding(self) -> bool:
        return any(worker.expected for worker in self.workers)

    def take(self, pick: int) -> tuple[int, Path]:
        slots = [slot for slot, worker in enumerate(self.workers) if worker.expected]
        slot = slots[pick % len(slots)]
        expected = self.workers[slot].expected
        return slot, expected.pop(pick % len(expected))

    @precondition(outstanding)
    @rule(pick=st.integers(0, 99))
    def withdrawn(self, pick: int) -> None:
        slot, path = self.take(pick)
        self.index.withdraw(slot, packed(path))

    @precondition(outstanding)
    @rule(pick=st.integers(0, 99), cut=st.integers(0, 7), output=st.integers(0, 2), tells=st.booleans())
    def ran(self, pick: int, cut: int, output: int, tells: bool) -> None:
        """Prefilled in two chunks, of which the worker tells or not; then some blocks that nobody else generates."""
        slot, path = self.take(pick)
        worker, digests = self.workers[slot], chain(path)
        self.workers[slot].expected.append(path)
        links = list(zip(digests, (0, *digests), strict=False))
        for part in (links[:cut], links[cut:]) if tells else ():
            self.cached(slot, part)
        worker.held |= dict(links)
        for _ in range(output):
            self.generated += 1
            parent, path = chain(path)[-1] if path else 0, (*path, self.generated)
            self.cached(slot, [(chain(path)[-1], parent)])
            if tells:
                self.probe(path)
        worker.expected.remove(path[: len(digests)])
        self.index.confirm(slot, packed(path[: len(digests)]))

    def cached(self, slot: int, links: list[tuple[int, int]]) -> None:
        self.workers[slot].held |= dict(links)
        self.index.cached(slot, runs(links))

    def evictable(self) -> bool:
        return any(worker.held for worker in self.workers)

    @precondition(evictable)
    @rule(pick=st.integers(0, 999), count=st.integers(1, 6))
    def evicted(self, pick: int, count: int) -> None:
        """Leaves first, as a worker must: of one chain, or of several in turn."""
        slots = [slot for slot, worker in enumerate(self.workers) if worker.held]
        slot = slots[pick % len(slots)]
        held, gone = self.workers[slot].held, []
        for number in range(min(count, len(held))):
            parents = set(held.values())
            leaves = sorted(digest for digest in held if digest not in parents)
            gone.append(leaves[(pick + number * (pick % 2)) % len(leaves)])
            del held[gone[-1]]
        self.index.evicted(slot, pack_digests(gone))

    @rule(slot=st.integers(0, SLOTS - 1), comes_back=st.booleans())
    def died(self, slot: int, comes_back: bool) -> None:
        """A snapshot replaces everything that was known of the slot."""
        held = self.workers[slot].held
        self.index.forget(slot)
        self.workers[slot] = NaiveWorker()
        if comes_back:
            self.cached(slot, list(held.items()))

    @rule(path=PATHS, eligible=st.integers(1, 2**SLOTS - 1))
    def matched(self, path: Path, eligible: int) -> None:
        self.compare(path, eligible)

    def probe(self, path: Path) -> None:
        self.compare(path, 2**SLOTS - 1)

    def compare(self, path: Path, eligible: int) -> None:
        lengths = {s: worker.matches(path) for s, worker in enumerate(self.workers) if eligible >> s & 1}
        expected = [
            (sum(1 << slot for slot, matched in lengths.items() if matched >= length), length)
            for length in sorted(set(lengths.values()))
        ]
        assert self.index.matches(packed(path), eligible) == expected

    @invariant()
    def holds(self) -> None:
        self.index.check_invariants()
        known = {digest for worker in self.workers for digest in worker.held}
        known |= {digest for worker in self.workers for path in worker.expected for digest in chain(path)}
        assert len(self.index) == len(known)


class SmallIndexMachine(RuleBasedStateMachine):
    """Too small for what happens: it never says that a worker has what it has not, and never outgrows its limit."""

    def __init__(self) -> None:
        super().__init__()
        self.index = BlockIndex(6)
        self.told: list[set[int]] = [set() for _ in range(SLOTS)]
        self.outstanding: list[tuple[int, Path]] = []

    @rule(slot=st.integers(0, SLOTS - 1), path=PATHS)
    def dispatched(self, slot: int, path: Path) -> None:
        if self.index.expect(slot, packed(path)):
            self.outstanding.append((slot, path))
            _, matched = self.index.matches(packed(path), 1 << slot)[-1]
            assert matched == len(path), "what was accepted is there"

    @precondition(lambda self: self.outstanding)
    @rule(pick=st.integers(0, 99), ran=st.booleans())
    def left(self, pick: int, ran: bool) -> None:
        slot, path = self.outstanding.pop(pick % len(self.outstanding))
        _, matched = self.index.matches(packed(path), 1 << slot)[-1]
        assert matched == len(path), "outstanding requests are spared"
        if ran:
            self.told[slot] |= set(chain(path))
            self.index.confirm(slot, packed(path))
        else:
            self.index.withdraw(slot, packed(path))

    @rule(slot=st.integers(0, SLOTS - 1), path=PATHS)
    def cached(self, slot: int, path: Path) -> None:
        self.told[slot] |= set(chain(path))
        self.index.cached(slot, [BlockRun(0, packed(path))])

    @rule(path=PATHS, slot=st.integers(0, SLOTS - 1))
    def matched(self, path: Path, slot: int) -> None:
        known = self.told[slot] | {d for s, p in self.outstanding if s == slot for d in chain(p)}
        _, matched = self.index.matches(packed(path), 1 << slot)[-1]
        assert all(digest in known for digest in chain(path)[:matched])

    @invariant()
    def holds(self) -> None:
        self.index.check_invariants()


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestSmallIndex = SmallIndexMachine.TestCase
TestSmallIndex.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_full_index_drops_the_end_of_the_run_used_longest_ago() -> None:
    index = BlockIndex(max_blocks=5)
    for path in ((1, 1, 1), (2, 2, 2)):
        index.cached(0, [BlockRun(0, packed(path))])
    assert longest(index, packed((1, 1, 1)), 1) == (1, 2)
    assert longest(index, packed((2, 2, 2)), 1) == (1, 3)
    index.expect(0, packed((1, 1)))
    index.withdraw(0, packed((1, 1)))
    index.cached(0, [BlockRun(0, packed((3,)))])
    assert longest(index, packed((1, 1, 1)), 1) == (1, 2), "used since"
    assert longest(index, packed((2, 2, 2)), 1) == (1, 2)


def test_an_index_full_of_outstanding_requests_takes_no_more() -> None:
    index = BlockIndex(max_blocks=3)
    assert index.expect(0, packed((1, 1, 1)))
    assert not index.expect(0, packed((2,)))
    index.cached(0, [BlockRun(0, packed((2,)))])
    assert longest(index, packed((2,)), 1) == (1, 0)
    index.confirm(0, packed((1, 1, 1)))
    assert index.expect(0, packed((2,)))


@pytest.mark.parametrize(("outstanding", "fits"), [(MAX_SPARED, True), (MAX_SPARED + 1, False)])
def test_a_full_index_passes_over_so_many_outstanding_requests_to_find_a_run(outstanding: int, fits: bool) -> None:
    index = BlockIndex(max_blocks=outstanding + 1)
    for number in range(outstanding):
        assert index.expect(0, packed((number,)))
    index.cached(0, [BlockRun(0, packed((1000,)))])
    assert index.expect(0, packed((2000,))) == fits
    assert longest(index, packed((1000,)), 1) == (1, not fits)


def test_a_withdrawn_request_leaves_what_another_announces() -> None:
    index = BlockIndex(ROOM)
    index.expect(0, packed((1, 1)))
    index.expect(0, packed((1, 1, 2)))
    index.withdraw(0, packed((1, 1)))
    assert longest(index, packed((1, 1, 2)), 1) == (1, 3)
    index.withdraw(0, packed((1, 1, 2)))
    assert len(index) == 0


def test_a_run_after_blocks_that_end_no_node_waits_for_a_prompt_that_contains_it() -> None:
    index = BlockIndex(ROOM)
    index.cached(0, [BlockRun(0, packed((1, 2, 3)))])
    index.cached(0, runs([(chain((1, 2, 9))[-1], chain((1, 2))[-1])]))
    assert longest(index, packed((1, 2, 9)), 1) == (1, 2)
    index.expect(0, packed((1, 2, 9)))
    index.confirm(0, packed((1, 2, 9)))
    assert longest(index, packed((1, 2, 9)), 1) == (1, 3)
    index.check_invariants()


def test_a_digest_known_after_another_prefix_ends_the_chain() -> None:
    index = BlockIndex(ROOM)
    index.cached(0, [BlockRun(0, pack_digests([1, 2]))])
    index.cached(0, [BlockRun(0, pack_digests([7]))])
    index.cached(1, [BlockRun(7, pack_digests([1]))])
    index.expect(1, pack_digests([7, 1]))
    index.withdraw(1, pack_digests([7, 1]))
    index.check_invariants()
    assert longest(index, pack_digests([1, 2]), 3) == (1, 2)


def test_a_snapshot_that_forks_is_held_whole() -> None:
    """A prompt of two blocks, and an answer that went on after the first of them."""
    first, second = chain((1, 1))
    [_, answer] = chain((1, 2))
    index = BlockIndex(10)
    index.cached(0, runs([(first, 0), (second, first), (answer, first)]))
    assert len(index) == 3
    assert longest(index, packed((1, 1)), 1) == longest(index, packed((1, 2)), 1) == (1, 2)
    index.check_invariants()


def test_ends_of_several_chains_are_evicted_at_once() -> None:
    index = BlockIndex(ROOM)
    paths = ((1, 1, 1), (2, 2, 2), (3, 3, 3))
    for path in paths:
        index.cached(0, [BlockRun(0, packed(path))])
    index.evicted(0, pack_digests([chain(path)[-1] for path in paths]))
    assert [longest(index, packed(path), 1) for path in paths] == [(1, 2)] * 3
    index.check_invariants()


def test_a_run_without_its_parent_does_not_hide_those_after_it() -> None:
    index = BlockIndex(ROOM)
    index.cached(0, [BlockRun(chain((9,))[-1], packed((1,))), BlockRun(0, packed((2,)))])
    assert longest(index, packed((2,)), 1) == (1, 1)


def test_an_answer_that_grows_does_not_hide_the_runs_after_it() -> None:
    index = BlockIndex(ROOM)
    index.cached(0, [BlockRun(0, packed((1,)))])
    index.cached(0, [BlockRun(chain((1,))[-1], pack_digests([chain((1, 2))[-1]])), BlockRun(0, packed((2,)))])
    assert [longest(index, packed(path), 1) for path in ((1, 2), (2,))] == [(1, 2), (1, 1)]


def test_an_answer_that_begins_where_others_diverged_leaves_them_in_place() -> None:
    index = BlockIndex(ROOM)
    [shared] = chain((1,))
    index.cached(0, runs([(shared, 0), (chain((1, 1))[-1], shared), (chain((1, 2))[-1], shared)]))
    index.cached(0, [BlockRun(shared, pack_digests(chain((1, 3))[1:]))])
    assert [longest(index, packed((1, last)), 1) for last in (1, 2, 3)] == [(1, 2)] * 3
    index.check_invariants()


def test_an_unknown_digest_does_not_hide_the_evictions_after_it() -> None:
    index = BlockIndex(ROOM)
    index.cached(0, [BlockRun(0, packed((1,)))])
    index.evicted(0, pack_digests([chain((9,))[-1], chain((1,))[-1]]))
    assert len(index) == 0


def last(path: Path) -> int:
    return chain(path)[-1]


def held_by_two() -> BlockIndex:
    index = BlockIndex(ROOM)
    for slot in range(2):
        index.cached(slot, [BlockRun(0, packed((1, 1, 1)))])
    return index


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_block_evicted_by_one_worker_stays_indexed_at_another(slot: int, gone: int) -> None:
    index = held_by_two()
    index.evicted(slot, pack_digests(chain((1, 1, 1))[::-1][:gone]))
    assert longest(index, packed((1, 1, 1)), 1 << slot) == (1 << slot, 3 - gone)
    assert longest(index, packed((1, 1, 1)), 2 >> slot) == (2 >> slot, 3)
    index.check_invariants()


@pytest.mark.parametrize("slot", [0, 1])
def test_an_answer_grows_at_the_worker_that_generates_it_alone(slot: int) -> None:
    index = BlockIndex(ROOM)
    index.cached(1 - slot, [BlockRun(0, packed((1,)))])
    index.cached(slot, [BlockRun(last((1,)), pack_digests([last((1, 1))]))])
    assert longest(index, packed((1, 1)), 2 >> slot) == (2 >> slot, 1)
    index.check_invariants()


def test_blocks_that_the_same_workers_hold_are_one_node() -> None:
    """The walk over a chain and the memory of the index grow with the nodes."""
    index = BlockIndex(ROOM)
    index.cached(0, [BlockRun(0, packed((1, 1)))])
    index.cached(1, [BlockRun(0, packed((1,)))])
    assert len(index._tree.nodes) == 2
    index.cached(1, [BlockRun(last((1,)), pack_digests([last((1, 1))]))])
    assert len(index._tree.nodes) == 1
    index.evicted(0, pack_digests([last((1, 1)), last((1,))]))
    assert len(index._tree.nodes) == 1


def test_a_node_is_whole_again_when_the_worker_that_had_its_end_alone_evicts_it() -> None:
    index = BlockIndex(ROOM)
    index.cached(0, [BlockRun(0, packed((1, 1)))])
    index.cached(1, [BlockRun(0, packed((1,)))])
    index.evicted(1, packed((1,)))
    index.cached(1, [BlockRun(last((1,)), pack_digests([last((1, 1))]))])
    index.evicted(1, pack_digests([last((1, 1))]))
    assert len(index._tree.nodes) == 1
    index.check_invariants()


def test_prompts_that_were_computed_are_one_node_with_the_prefix_that_they_share() -> None:
    index = BlockIndex(ROOM)
    for path in ((1,), (1, 1), (1, 1, 1)):
        index.expect(0, packed(path))
    assert len(index._tree.nodes) == 3
    for path in ((1,), (1, 1), (1, 1, 1)):
        index.confirm(0, packed(path))
    assert len(index._tree.nodes) == 1


def test_a_run_for_which_there_is_no_room_is_left_out_whole() -> None:
    index = BlockIndex(max_blocks=MAX_SPARED + 1)
    for number in range(MAX_SPARED + 1):
        assert index.expect(0, packed((number,)))
    index.cached(1, [BlockRun(0, packed((1000, 1001)))])
    index.check_invariants()
    assert longest(index, packed((1000, 1001)), 2) == (2, 0)


def test_a_snapshot_that_forks_at_several_places_is_held_whole() -> None:
    index = BlockIndex(ROOM)
    whole = (1, 1, 1, 1, 1)
    branches = [(*whole[:size], 2) for size in (2, 3, 4)]
    tails = [BlockRun(last(path[:-1]), pack_digests([last(path)])) for path in branches]
    index.cached(0, [BlockRun(0, packed(whole)), *tails])
    assert [longest(index, packed(path), 1) for path in (whole, *branches)] == [(1, 5), (1, 3), (1, 4), (1, 5)]
    index.check_invariants()


def test_a_block_that_a_request_will_compute_again_is_expected_though_it_was_evicted() -> None:
    index = BlockIndex(ROOM)
    index.cached(0, [BlockRun(0, packed((1, 1)))])
    index.expect(0, packed((1, 1)))
    index.evicted(0, pack_digests(chain((1, 1))[::-1]))
    assert longest(index, packed((1, 1)), 1) == (1, 2)
    index.withdraw(0, packed((1, 1)))
    assert len(index) == 0


def test_a_worker_that_is_forgotten_leaves_what_others_hold() -> None:
    index = held_by_two()
    index.cached(1, [BlockRun(0, packed((2,)))])
    index.cached(0, [BlockRun(last((2,)), pack_digests([last((2, 2))]))])
    index.forget(1)
    index.check_invariants()
    assert [longest(index, packed(path), 1) for path in ((1, 1, 1), (2, 2))] == [(1, 3), (1, 0)]
    assert longest(index, packed((1, 1, 1)), 2) == (2, 0)
    index.forget(0)
    assert len(index) == 0


def test_withdrawn_requests_leave_the_node_that_was_there_before_them() -> None:
    index = BlockIndex(ROOM)
    index.cached(0, [BlockRun(0, packed((1, 1)))])
    for path in ((1,), (1, 1)):
        index.expect(1, packed(path))
    for path in ((1,), (1, 1)):
        index.withdraw(1, packed(path))
    assert len(index._tree.nodes) == 1
