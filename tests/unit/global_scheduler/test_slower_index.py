"""What a prefix is worth that is partly in slower memories, against sets of blocks for each worker and tier."""

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from global_scheduler.core.block_index import WHOLE, BlockIndex, SlowerIndex
from serving.blocks import Link, pack_digests, runs
from serving.kv_events.core.tiers import DEVICE, DISK, HOST, LOADING, TIERS
from tests.unit.global_scheduler.driving import dispatcher, placed, request

WORKERS = 4
PROMPTS = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 14, 15], [1, 22, 23], [31, 32]]


def links(prompt: list[int]) -> list[Link]:
    return list(zip(prompt, [0, *prompt], strict=False))


class Cluster:
    """Workers whose copies of blocks come and go; from ends of prompts on, as engines evict."""

    def __init__(self) -> None:
        self.device, self.slower = BlockIndex(1000), SlowerIndex(1000)
        self.copies: dict[tuple[int, int], set[int]] = {}  # worker, tier -> blocks

    def holds(self, worker: int, tier: int) -> set[int]:
        """The blocks of which the worker has a copy in `tier` or a faster memory."""
        copies = (held for (name, other), held in self.copies.items() if name == worker and other <= tier)
        return {block for held in copies for block in held}

    def change(self, worker: int, tier: int, stored: list[int], removed: list[int]) -> None:
        before = [self.holds(worker, each) for each in TIERS]
        own = self.copies.setdefault((worker, tier), set())
        own.update(stored)
        own.difference_update(removed)
        for each in TIERS:
            after = self.holds(worker, each)
            cached = runs(links(stored) if tier <= each else [])
            evicted = pack_digests([block for block in removed if block in before[each] - after])
            if each == DEVICE:
                self.device.evicted(worker, evicted)
                self.device.cached(worker, cached)
            else:
                self.slower.changed(worker, each, cached, evicted)

    def worth(self, worker: int, prompt: list[int]) -> int:
        """The blocks that the worker need not compute, less what it costs to load them."""
        value, ended = 0, [False] * len(TIERS)
        for block in prompt:
            for tier in TIERS:
                ended[tier] |= block not in self.holds(worker, tier)
            reachable = [tier for tier in TIERS if not ended[tier]]
            if not reachable:
                break
            value += WHOLE - LOADING.get(reachable[0], 0)
        return value // WHOLE


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_worker_has_the_worth_of_its_own_copies(seed: int) -> None:
    random, cluster = Random(seed), Cluster()
    for _ in range(30):
        worker, tier, prompt = random.randrange(WORKERS), random.choice(TIERS), random.choice(PROMPTS)
        length = random.randint(0, len(prompt))
        if random.random() < 0.6:
            cluster.change(worker, tier, prompt[:length], [])
        else:
            held = cluster.copies.get((worker, tier), set())
            others = {block for other in PROMPTS if other is not prompt for block in other}
            tail = [block for block in prompt[:length:-1] if block in held and block not in others]
            cluster.change(worker, tier, [], tail)
        eligible = random.randrange(1, 1 << WORKERS)
        for asked in PROMPTS:
            chain = pack_digests(asked)
            matches = cluster.slower.lengthened(cluster.device.matches(chain, eligible), chain)
            assert matches[0][0] == eligible
            lengths = [blocks for _, blocks in matches]
            assert lengths == sorted(set(lengths)), "each set is within the one before, and its match is longer"
            for one, other in pairwise(matches):
                assert other[0] & one[0] == other[0] != one[0]
            for worker in range(WORKERS):
                if eligible >> worker & 1:
                    found = max(blocks for workers, blocks in matches if workers >> worker & 1)
                    assert found == cluster.worth(worker, asked)
        cluster.slower.check_invariants()


def test_a_worker_that_has_left_holds_nothing() -> None:
    cluster, chain = Cluster(), pack_digests(PROMPTS[0])
    cluster.change(0, HOST, PROMPTS[0], [])
    cluster.change(1, DISK, PROMPTS[0], [])
    assert cluster.slower.lengthened([(0b11, 0)], chain) == [(0b11, 4), (0b01, 5)]
    cluster.slower.forget(0)
    assert cluster.slower.lengthened([(0b11, 0)], chain) == [(0b11, 0), (0b10, 4)]


def test_a_request_goes_where_its_prefix_need_only_be_loaded_unless_another_worker_has_it_on_its_device() -> None:
    made, (a, b) = dispatcher("least-delay")
    prompt = list(range(1, 41))
    chain = pack_digests(prompt)
    made.slower_progressed(b, HOST, runs(links(prompt)), b"")
    first = made.dispatch(request("1", digests=chain, prompt_tokens=16 * 41), now=0)
    assert placed(first) == "b"
    assert first is not None
    assert first.matched_tokens == 16 * 38, "two of 40 blocks are what it costs to load them"
    made.withdrawn("1", 1)
    made.progressed(a, runs(links(prompt)), b"")
    assert placed(made.dispatch(request("2", digests=chain, prompt_tokens=16 * 41), now=0)) == "a"
    made.withdrawn("2", 1)
    made.lost(a)
    made.slower_progressed(b, HOST, [], pack_digests(prompt[::-1]))
    third = made.dispatch(request("3", digests=chain, prompt_tokens=16 * 41), now=0)
    assert third is not None
    assert third.matched_tokens == 0
    made.check_invariants()
