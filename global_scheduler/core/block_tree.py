"""A radix tree over packed block digests: runs of blocks that the same workers hold (DLPM Alg. 2, `R`).

Sets of workers are bitmasks, so that one walk answers for all workers. There is one flat dictionary from a node's
first digest to the node instead of one per parent: a digest stands for its whole prefix. Runs are compared as slices of
bytes.
"""

from collections import OrderedDict
from collections.abc import Iterator

from serving.blocks import DIGEST_BYTES


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

    def hold(self, slot: int) -> None:
        """The worker at `slot` holds the run."""
        self.held |= 1 << slot
        self.mask |= 1 << slot

    def release(self, slot: int) -> None:
        """The worker at `slot` does not hold the run any more; requests may still announce it there."""
        self.held &= ~(1 << slot)
        self._remask()

    def forget(self, slot: int) -> None:
        """The worker at `slot` is gone, and with it what was announced there."""
        if self.expected is not None:
            self.expected.pop(slot, None)
            self.expected = self.expected or None
        self.release(slot)

    def _remask(self) -> None:
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


class BlockTree:
    """Nodes in the order of their last use. A node without workers and without children is not kept."""

    def __init__(self) -> None:
        self.blocks = 0  # of all nodes
        # By first digest; least recently used first. A path is touched from its end to its root, and so a node is
        # always older than its parent, and the oldest is a leaf.
        self._firsts: OrderedDict[bytes, Node] = OrderedDict()
        self._lasts: dict[bytes, Node] = {}

    @property
    def nodes(self) -> list[Node]:
        """All nodes, the least recently used first."""
        return list(self._firsts.values())

    @property
    def oldest(self) -> Node:
        """The leaf that was used longest ago; the tree must not be empty."""
        return next(iter(self._firsts.values()))

    def ending_with(self, digest: bytes) -> Node | None:
        """The node whose last block has `digest`."""
        return self._lasts.get(digest)

    def __contains__(self, node: Node) -> bool:
        return self._firsts.get(node.digests[:DIGEST_BYTES]) is node

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

    def reach(self, parent: Node | None, chain: bytes) -> list[Node]:
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
                node = self.split(node, _common(node.digests, chain, position))
            path.append(node)
            position += len(node.digests)
            parent = node
        return path

    def along(self, chain: bytes) -> Iterator[Node]:
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
        self.blocks += len(node.digests) // DIGEST_BYTES
        if node.parent is not None:
            node.parent.children += 1
        return node

    def append(self, leaf: Node, digests: bytes) -> bool:
        """Lengthen `leaf` by `digests`; False, changing nothing, when another node begins with them."""
        if digests[:DIGEST_BYTES] in self._firsts:
            return False
        del self._lasts[leaf.digests[-DIGEST_BYTES:]]
        leaf.digests += digests
        self._lasts[leaf.digests[-DIGEST_BYTES:]] = leaf
        self.blocks += len(digests) // DIGEST_BYTES
        self.touch(leaf)
        return True

    def split(self, lower: Node, size: int) -> Node:
        """Cut after `size` bytes; returns the new upper part. The node itself stays the parent of its children."""
        upper = Node(lower.digests[:size], lower.parent)
        upper.children, upper.held, upper.mask = 1, lower.held, lower.mask
        upper.expected = dict(lower.expected) if lower.expected else None
        lower.digests, lower.parent = lower.digests[size:], upper
        self._firsts[upper.digests[:DIGEST_BYTES]] = upper
        self._firsts[lower.digests[:DIGEST_BYTES]] = lower
        self._lasts[upper.digests[-DIGEST_BYTES:]] = upper
        self.touch(upper)
        return upper

    def join_upwards(self, node: Node | None) -> None:
        """Join `node`, and each node before it, with its parent wherever nothing tells them apart any more."""
        while node is not None:
            if not self.join(node):
                node = node.parent

    def join(self, node: Node) -> bool:
        """Make one node of `node` and its parent if nothing tells them apart any more."""
        upper = node.parent
        if upper is None or upper.children > 1 or upper.held != node.held or upper.expected != node.expected:
            return False
        del self._firsts[node.digests[:DIGEST_BYTES]]
        del self._lasts[upper.digests[-DIGEST_BYTES:]]
        node.digests, node.parent = upper.digests + node.digests, upper.parent
        self._firsts[node.digests[:DIGEST_BYTES]] = node
        return True

    def trim(self, node: Node, size: int) -> None:
        """Drop `size` bytes from a leaf's end."""
        if size == len(node.digests):
            self.remove(node)
            return
        del self._lasts[node.digests[-DIGEST_BYTES:]]
        node.digests = node.digests[:-size]
        self._lasts[node.digests[-DIGEST_BYTES:]] = node
        self.blocks -= size // DIGEST_BYTES

    def remove(self, node: Node) -> None:
        """Drop a leaf, and those before it that nobody has and that lead nowhere now."""
        leaf: Node | None = node
        while leaf is not None:
            del self._firsts[leaf.digests[:DIGEST_BYTES]]
            del self._lasts[leaf.digests[-DIGEST_BYTES:]]
            self.blocks -= len(leaf.digests) // DIGEST_BYTES
            parent, leaf.parent = leaf.parent, None
            if parent is None:
                return
            parent.children -= 1
            leaf = None if parent.mask or parent.children else parent

    def touch(self, node: Node | None) -> None:
        """`node` and all before it are used now."""
        while node is not None:
            self._firsts.move_to_end(node.digests[:DIGEST_BYTES])
            node = node.parent

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
        assert blocks == self.blocks, f"{blocks} blocks, {self.blocks} counted"


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
