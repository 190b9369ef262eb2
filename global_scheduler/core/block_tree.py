"""A radix tree over packed block digests: its nodes are runs of blocks that the same workers hold (DLPM Alg. 2, `R`).

Sets of workers are bitmasks, so one walk gives the match of every worker. One flat dictionary maps the first digest of
a node to the node; a dictionary per parent is not needed, because a digest identifies its whole prefix. Runs are
compared as slices of bytes.
"""

from collections import OrderedDict
from collections.abc import Iterator

from serving.blocks import DIGEST_BYTES

# Sets of workers, each within the one before and holding a longer beginning of a chain, with its length in blocks. A
# worker's match is the length of the last set that contains it.
Matches = list[tuple[int, int]]


class Node:
    """A run of consecutive blocks that the same workers hold or expect.

    `held` is the bitmask of workers that cache the run, `expected` the number of requests by worker slot that will
    compute it, and `mask` the union of both.
    """

    __slots__ = ("children", "digests", "expected", "held", "mask", "parent")

    def __init__(self, digests: bytes, parent: "Node | None") -> None:
        self.digests = digests
        self.parent = parent
        self.children = 0
        self.held = 0
        self.expected: dict[int, int] | None = None
        self.mask = 0

    def hold(self, slot: int) -> None:
        """Record that the worker at `slot` caches the run."""
        self.held |= 1 << slot
        self.mask |= 1 << slot

    def release(self, slot: int) -> None:
        """Record that the worker at `slot` no longer caches the run; requests may still compute it there."""
        self.held &= ~(1 << slot)
        self._remask()

    def forget(self, slot: int) -> None:
        """Remove the worker at `slot` with the requests expected there."""
        if self.expected is not None:
            self.expected.pop(slot, None)
            self.expected = self.expected or None
        self.release(slot)

    def _remask(self) -> None:
        self.mask = self.held
        for slot in self.expected or ():
            self.mask |= 1 << slot

    def expect(self, slot: int) -> None:
        """Count one more request that will compute the run at `slot`."""
        if self.expected is None:
            self.expected = {}
        self.expected[slot] = self.expected.get(slot, 0) + 1
        self.mask |= 1 << slot

    def withdraw(self, slot: int) -> None:
        """Count one request less that will compute the run at `slot`."""
        if self.expected is None or slot not in self.expected:
            return
        self.expected[slot] -= 1
        if not self.expected[slot]:
            del self.expected[slot]
            self.expected = self.expected or None
            # Clearing one bit avoids a walk over `expected`: all workers may expect a run that all clients share.
            if not self.held >> slot & 1:
                self.mask &= ~(1 << slot)


class BlockTree:
    """The nodes of the tree in least-recently-used order. A node without workers and without children is removed."""

    def __init__(self) -> None:
        self.blocks = 0  # of all nodes
        # By first digest, least recently used first. A path is touched from its end to its root, so a node is always
        # older than its parent, and the oldest node is a leaf.
        self._firsts: OrderedDict[bytes, Node] = OrderedDict()
        self._lasts: dict[bytes, Node] = {}

    @property
    def nodes(self) -> list[Node]:
        """All nodes, the least recently used first."""
        return list(self._firsts.values())

    @property
    def oldest(self) -> Node:
        """The least recently used leaf; the tree must not be empty."""
        return next(iter(self._firsts.values()))

    def ending_with(self, digest: bytes) -> Node | None:
        """Return the node whose last block has `digest`, or None."""
        return self._lasts.get(digest)

    def __contains__(self, node: Node) -> bool:
        return self._firsts.get(node.digests[:DIGEST_BYTES]) is node

    def matches(self, chain: bytes, eligible: int) -> Matches:
        """Return the match of every eligible worker, of which there must be one; one walk, however many there are."""
        found = []
        position, end = 0, len(chain)
        while position < end:
            node = self._firsts.get(chain[position : position + DIGEST_BYTES])
            if node is None:
                break
            holding = eligible & node.mask
            if holding != eligible:
                found.append((eligible, position // DIGEST_BYTES))
                if not holding:
                    return found
                eligible = holding
            if not chain.startswith(node.digests, position):
                position += _common(node.digests, chain, position)
                break
            position += len(node.digests)
        found.append((eligible, position // DIGEST_BYTES))
        return found

    def reach(self, parent: Node | None, chain: bytes) -> list[Node]:
        """Return the nodes of `chain` below `parent`, created and split so that one node ends where the chain ends."""
        path: list[Node] = []
        position = 0
        while position < len(chain):
            node = self._firsts.get(chain[position : position + DIGEST_BYTES])
            if node is None:
                node = self._add(Node(chain[position:], parent))
            elif node.parent is not parent:
                break  # the same digest after another prefix is a collision
            elif not chain.startswith(node.digests, position):
                node = self.split(node, _common(node.digests, chain, position))
            path.append(node)
            position += len(node.digests)
            parent = node
        return path

    def along(self, chain: bytes) -> Iterator[Node]:
        """Yield the nodes that `chain` covers entirely."""
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
        """Append `digests` to `leaf`; return False and change nothing if another node begins with them."""
        if digests[:DIGEST_BYTES] in self._firsts:
            return False
        del self._lasts[leaf.digests[-DIGEST_BYTES:]]
        leaf.digests += digests
        self._lasts[leaf.digests[-DIGEST_BYTES:]] = leaf
        self.blocks += len(digests) // DIGEST_BYTES
        self.touch(leaf)
        return True

    def split(self, lower: Node, size: int) -> Node:
        """Split `lower` after `size` bytes and return the new upper node; `lower` stays the parent of its children."""
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
        """Join `node`, and each of its ancestors, with its parent wherever both have the same workers."""
        while node is not None:
            if not self.join(node):
                node = node.parent

    def join(self, node: Node) -> bool:
        """Join `node` with its parent if both have the same workers and no branch; return whether they were joined."""
        upper = node.parent
        if upper is None or upper.children > 1 or upper.held != node.held or upper.expected != node.expected:
            return False
        del self._firsts[node.digests[:DIGEST_BYTES]]
        del self._lasts[upper.digests[-DIGEST_BYTES:]]
        node.digests, node.parent = upper.digests + node.digests, upper.parent
        self._firsts[node.digests[:DIGEST_BYTES]] = node
        return True

    def trim(self, node: Node, size: int) -> None:
        """Remove `size` bytes of digests from the end of a leaf."""
        if size == len(node.digests):
            self.remove(node)
            return
        del self._lasts[node.digests[-DIGEST_BYTES:]]
        node.digests = node.digests[:-size]
        self._lasts[node.digests[-DIGEST_BYTES:]] = node
        self.blocks -= size // DIGEST_BYTES

    def remove(self, node: Node) -> None:
        """Remove a leaf, and its ancestors that then have neither workers nor children."""
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
        """Mark `node` and all its ancestors as just used."""
        while node is not None:
            self._firsts.move_to_end(node.digests[:DIGEST_BYTES])
            node = node.parent

    def check_invariants(self) -> None:
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
            assert node.mask or node.children, f"{name} has neither workers nor children"
            announced = sum(1 << slot for slot in node.expected or ())
            assert node.mask == node.held | announced, f"{name}: mask {node.mask:b}"
        assert len(self._lasts) == len(self._firsts), f"{len(self._lasts)} ends of {len(self._firsts)} nodes"
        blocks = sum(len(node.digests) for node in order) // DIGEST_BYTES
        assert blocks == self.blocks, f"{blocks} blocks, {self.blocks} counted"


def _common(digests: bytes, chain: bytes, position: int) -> int:
    """Return how many bytes, in whole digests, `digests` and `chain` from `position` on have in common."""
    low, high = 0, min(len(digests), len(chain) - position) // DIGEST_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if chain.startswith(digests[: middle * DIGEST_BYTES], position):
            low = middle
        else:
            high = middle - 1
    return low * DIGEST_BYTES
