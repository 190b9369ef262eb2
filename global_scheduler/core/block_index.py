"""Which workers are believed to hold which prefixes: routing hints, never trusted for correctness.

A radix tree over packed block digests (DLPM Alg. 2, `R`). A node is a run of blocks that the same workers hold; sets of
workers are bitmasks, so that one walk answers for all workers. There is one flat dictionary from a node's first digest
to the node instead of one per parent: a digest stands for its whole prefix. Runs are compared as slices of bytes.

A worker *holds* a block from its word (`cached`) until its word (`evicted`). Before, from dispatch on, the block is
*expected*: counted per request, so that one request's withdrawal never drops what another still announces.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from serving.blocks import DIGEST_BYTES, Run, pack_digests, unpack_digests

# Nodes that announce blocks of outstanding requests are spared when the index is full; so many are passed over at most.
MAX_SPARED = 64


class Node:
    """A run of blocks. `mask` = the workers that hold or expect it; `expected`: requests per worker slot."""

    __slots__ = ("children", "digests", "expected", "held", "mask", "parent")

    def __init__(self, digests: bytes, parent: "Node | None") -> None:
        self.digests = digests
        self.parent = parent
        self.children = 0
        self.held = 0
        self.expected: dict[int, int] | None = None
        self.mask = 0

    def remask(self) -> None:
        """After `held` or `expected` changed."""
        self.mask = self.held
        for slot in self.expected or ():
            self.mask |= 1 << slot

    def expect(self, slot: int) -> None:
        """One more request announces the run at `slot`."""
        if self.expected is None:
            self.expected = {}
        self.expected[slot] = self.expected.get(slot, 0) + 1
        self.mask |= 1 << slot

    def withdraw(self, slot: int) -> None:
        """One request less."""
        if self.expected is None or slot not in self.expected:
            return
        self.expected[slot] -= 1
        if not self.expected[slot]:
            del self.expected[slot]
            self.expected = self.expected or None
            # Not all workers that expect the run are looked at: what everybody shares, all of them do.
            if not self.held >> slot & 1:
                self.mask &= ~(1 << slot)


class BlockIndex:
    """At most `max_blocks` blocks.

    When full, the run that was used longest ago loses blocks from its end; those announced by outstanding requests are
    spared. When only such are found, the newcomer is not indexed: it still runs, just without a hint for others.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._blocks = 0
        # By first digest; least recently used first. A path is touched from its end to its root, and so a node is
        # always older than its parent, and the oldest is a leaf.
        self._firsts: OrderedDict[bytes, Node] = OrderedDict()
        self._lasts: dict[bytes, Node] = {}

    def __len__(self) -> int:
        return self._blocks

    def match(self, chain: bytes, eligible: int) -> tuple[int, int]:
        """The eligible workers with the longest match, and its blocks; all of them with 0 when nobody has any."""
        position, end = 0, len(chain)
        while position < end:
            node = self._firsts.get(chain[position : position + DIGEST_BYTES])
            if node is None or not eligible & node.mask:
                break
            eligible &= node.mask
            if not chain.startswith(node.digests, position):
                position += _common(node.digests, chain, position)
                break
            position += len(node.digests)
        return eligible, position // DIGEST_BYTES

    def expect(self, slot: int, chain: bytes) -> bool:
        """A request with this chain goes to `slot` (line 18); False, changing nothing, when there is no room."""
        path = self._reach(None, chain)
        for node in path:
            node.expect(slot)
        if path:
            self._touch(path[-1])
        if self._shrink():
            return True
        self.withdraw(slot, chain)
        return False

    def withdraw(self, slot: int, chain: bytes) -> None:
        """An expected request does not come, or not to its end: its blocks are no longer announced by it."""
        path = list(self._along(chain))
        for node in path:
            node.withdraw(slot)
        if path and not path[-1].mask and not path[-1].children:
            self._remove(path[-1])
        self._join_upwards(next((node for node in reversed(path) if self._is_known(node)), None))

    def confirm(self, slot: int, chain: bytes) -> None:
        """An expected request has run at `slot`: its whole chain is held there."""
        path = list(self._along(chain))
        for node in path:
            node.withdraw(slot)
            node.held |= 1 << slot
            node.mask |= 1 << slot
        self._join_upwards(path[-1] if path else None)

    def cached(self, slot: int, runs: Sequence[Run]) -> None:
        """`slot` says that it holds `runs`, each after its parent: news, or a snapshot after `forget`.

        A run whose parent lies within a node is left out: two requests generated the same blocks and parted later, or
        what comes before was dropped. The next prompt that contains it brings it back.
        """
        ends: list[Node] = []
        pieces = list(_cut(runs))
        # A node that others will follow, too, must keep its end.
        forks = len({run.parent for run in pieces}) < len(pieces)
        for run in pieces:
            parent = self._lasts.get(run.parent.to_bytes(DIGEST_BYTES, "little")) if run.parent else None
            if run.parent and parent is None:
                continue
            if not forks and parent is not None and self._append(parent, slot, run.digests):
                continue
            path = self._reach(parent, run.digests)
            for node in path:
                node.held |= 1 << slot
                node.mask |= 1 << slot
            self._touch(path[-1] if path else None)
            ends += path[-1:]
        for node in ends:
            if self._is_known(node):
                self._join_upwards(node)
        if not self._shrink():
            for run in reversed(runs):
                self.evicted(slot, pack_digests(unpack_digests(run.digests)[::-1]))

    def evicted(self, slot: int, digests: bytes) -> None:
        """`slot` no longer holds `digests`, ends of chains first (line 27); unknown ones are ignored."""
        bit, position = 1 << slot, 0
        while position < len(digests):
            node = self._lasts.get(digests[position : position + DIGEST_BYTES])
            if node is None or not node.held & bit:
                position += DIGEST_BYTES
                continue
            size = _common_backwards(node.digests, digests, position)
            position += size
            if node.mask == bit and not node.expected and not node.children:
                self._trim(node, size)
                continue
            if size < len(node.digests):
                self._split(node, len(node.digests) - size)
            node.held &= ~bit
            node.remask()
            self._settle(node)

    def forget(self, slot: int) -> None:
        """The worker is gone; its slot may be given to another. O(nodes): workers come and go rarely."""
        for node in list(self._firsts.values()):
            if node.mask >> slot & 1:
                node.held &= ~(1 << slot)
                if node.expected is not None:
                    node.expected.pop(slot, None)
                    node.expected = node.expected or None
                node.remask()
                if not node.mask and not node.children:
                    self._remove(node)

    def _is_known(self, node: Node) -> bool:
        return self._firsts.get(node.digests[:DIGEST_BYTES]) is node

    def _reach(self, parent: Node | None, chain: bytes) -> list[Node]:
        """The nodes of `chain` below `parent`, made and split so that one of them ends where it ends."""
        path: list[Node] = []
        position = 0
        while position < len(chain):
            node = self._firsts.get(chain[position : position + DIGEST_BYTES])
            if node is None:
                node = self._add(Node(chain[position:], parent))
            elif node.parent is not parent:
                break  # the same digest after another prefix: no chain of ours
            elif not chain.startswith(node.digests, position):
                node = self._split(node, _common(node.digests, chain, position))
            path.append(node)
            position += len(node.digests)
            parent = node
        return path

    def _along(self, chain: bytes) -> Iterator[Node]:
        """The nodes that `chain` covers entirely."""
        parent: Node | None = None
        position = 0
        while position < len(chain):
            node = self._firsts.get(chain[position : position + DIGEST_BYTES])
            if node is None or node.parent is not parent or not chain.startswith(node.digests, position):
                return
            yield node
            position += len(node.digests)
            parent = node

    def _add(self, node: Node) -> Node:
        self._firsts[node.digests[:DIGEST_BYTES]] = node
        self._lasts[node.digests[-DIGEST_BYTES:]] = node
        self._blocks += len(node.digests) // DIGEST_BYTES
        if node.parent is not None:
            node.parent.children += 1
        return node

    def _append(self, leaf: Node, slot: int, digests: bytes) -> bool:
        """What adding a node after `leaf` and joining the two would come to: a request's answer grows by a block."""
        if (
            leaf.children
            or leaf.expected is not None
            or leaf.held != 1 << slot
            or digests[:DIGEST_BYTES] in self._firsts
        ):
            return False
        del self._lasts[leaf.digests[-DIGEST_BYTES:]]
        leaf.digests += digests
        self._lasts[leaf.digests[-DIGEST_BYTES:]] = leaf
        self._blocks += len(digests) // DIGEST_BYTES
        self._touch(leaf)
        return True

    def _split(self, lower: Node, size: int) -> Node:
        """Cut after `size` bytes; returns the new upper part. The node itself stays the parent of its children."""
        upper = Node(lower.digests[:size], lower.parent)
        upper.children, upper.held, upper.mask = 1, lower.held, lower.mask
        upper.expected = dict(lower.expected) if lower.expected else None
        lower.digests, lower.parent = lower.digests[size:], upper
        self._firsts[upper.digests[:DIGEST_BYTES]] = upper
        self._firsts[lower.digests[:DIGEST_BYTES]] = lower
        self._lasts[upper.digests[-DIGEST_BYTES:]] = upper
        self._touch(upper)
        return upper

    def _join_upwards(self, node: Node | None) -> None:
        while node is not None:
            if not self._join(node):
                node = node.parent

    def _join(self, node: Node) -> bool:
        """Make one node of `node` and its parent if nothing tells them apart any more."""
        upper = node.parent
        if upper is None or upper.children > 1 or upper.held != node.held or upper.expected != node.expected:
            return False
        del self._firsts[node.digests[:DIGEST_BYTES]]
        del self._lasts[upper.digests[-DIGEST_BYTES:]]
        node.digests, node.parent = upper.digests + node.digests, upper.parent
        self._firsts[node.digests[:DIGEST_BYTES]] = node
        return True

    def _settle(self, node: Node) -> None:
        """`node` lost a worker."""
        if node.mask or node.children:
            self._join(node)
        else:
            self._remove(node)

    def _trim(self, node: Node, size: int) -> None:
        """Drop `size` bytes from a leaf's end."""
        if size == len(node.digests):
            self._remove(node)
            return
        del self._lasts[node.digests[-DIGEST_BYTES:]]
        node.digests = node.digests[:-size]
        self._lasts[node.digests[-DIGEST_BYTES:]] = node
        self._blocks -= size // DIGEST_BYTES

    def _remove(self, node: Node) -> None:
        """Drop a leaf, and those before it that nobody has and that lead nowhere now."""
        leaf: Node | None = node
        while leaf is not None:
            del self._firsts[leaf.digests[:DIGEST_BYTES]]
            del self._lasts[leaf.digests[-DIGEST_BYTES:]]
            self._blocks -= len(leaf.digests) // DIGEST_BYTES
            parent, leaf.parent = leaf.parent, None
            if parent is None:
                return
            parent.children -= 1
            leaf = None if parent.mask or parent.children else parent

    def _touch(self, node: Node | None) -> None:
        while node is not None:
            self._firsts.move_to_end(node.digests[:DIGEST_BYTES])
            node = node.parent

    def _shrink(self) -> bool:
        """Make the index fit; False when outstanding requests need what would have to go."""
        spared = 0
        while self._blocks > self._max_blocks:
            oldest = next(iter(self._firsts.values()))
            if oldest.expected is None:
                excess = (self._blocks - self._max_blocks) * DIGEST_BYTES
                self._trim(oldest, min(excess, len(oldest.digests)))
            elif spared == MAX_SPARED:
                return False
            else:
                spared += 1
                self._touch(oldest)
        return True

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        order = {node: place for place, node in enumerate(self._firsts.values())}
        children: dict[Node, int] = dict.fromkeys(order, 0)
        for node in order:
            if node.parent is not None:
                assert order[node.parent] > order[node], "a node is newer than its parent"
                children[node.parent] += 1
        for first, node in self._firsts.items():
            name = first.hex()
            assert node.digests[:DIGEST_BYTES] == first, f"{name} is kept for another node"
            assert self._lasts[node.digests[-DIGEST_BYTES:]] is node, f"{name}: its end leads elsewhere"
            assert node.children == children[node], f"{name}: {node.children} children counted, {children[node]} there"
            assert node.mask or node.children, f"{name} is held by nobody and leads nowhere"
            announced = sum(1 << slot for slot in node.expected or ())
            assert node.mask == node.held | announced, f"{name}: mask {node.mask:b}"
        assert len(self._lasts) == len(self._firsts), f"{len(self._lasts)} ends of {len(self._firsts)} nodes"
        blocks = sum(len(node.digests) for node in order) // DIGEST_BYTES
        assert blocks == self._blocks <= self._max_blocks, f"{blocks} blocks, {self._blocks} counted"


def _cut(runs: Sequence[Run]) -> Iterator[Run]:
    """The same blocks in runs that end wherever another one begins."""
    parents = {run.parent for run in runs}
    for run in runs:
        if len(run.digests) == DIGEST_BYTES:
            yield run
            continue
        digests, start, parent = unpack_digests(run.digests), 0, run.parent
        for stop, digest in enumerate(digests, start=1):
            if digest in parents or stop == len(digests):
                yield Run(parent, pack_digests(digests[start:stop]))
                start, parent = stop, digest


def _common(digests: bytes, chain: bytes, position: int) -> int:
    """How many bytes, whole digests, `digests` and `chain` from `position` have in common."""
    low, high = 0, min(len(digests), len(chain) - position) // DIGEST_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if chain.startswith(digests[: middle * DIGEST_BYTES], position):
            low = middle
        else:
            high = middle - 1
    return low * DIGEST_BYTES


def _common_backwards(digests: bytes, evicted: bytes, position: int) -> int:
    """How many bytes at the end of `digests` are listed in `evicted` from `position` on, last digest first."""
    size, end = 0, len(digests)
    while size < end and (
        digests[end - size - DIGEST_BYTES : end - size] == evicted[position + size : position + size + DIGEST_BYTES]
    ):
        size += DIGEST_BYTES
    return size
