"""The tree's edges, which histories of the block index seldom reach: equal digests after other prefixes, long joins."""

from global_scheduler.core.block_tree import BlockTree, Node
from serving.blocks import DIGEST_BYTES


def chain(letters: str) -> bytes:
    """One digest for each letter; a letter after two prefixes is a collision."""
    return b"".join(letter.encode() * DIGEST_BYTES for letter in letters)


def reached(tree: BlockTree, letters: str) -> list[Node]:
    """The nodes of a chain that worker 0 holds."""
    path = tree.reach(None, chain(letters))
    for node in path:
        node.hold(0)
    return path


def letters_of(nodes: list[Node]) -> list[str]:
    return [node.digests[::DIGEST_BYTES].decode() for node in nodes]


def test_a_digest_after_another_prefix_ends_the_path() -> None:
    tree = BlockTree()
    reached(tree, "a")
    reached(tree, "ax")
    assert letters_of(reached(tree, "b")) == ["b"]
    assert letters_of(reached(tree, "bx")) == ["b"]
    assert letters_of(list(tree.along(chain("bx")))) == ["b"]
    assert letters_of(list(tree.along(chain("ax")))) == ["a", "x"]


def test_blocks_that_follow_at_another_worker_do_not_lengthen_a_match() -> None:
    tree = BlockTree()
    reached(tree, "abc")
    reached(tree, "x")
    assert tree.matches(chain("abx"), 1) == [(1, 2)]


def test_a_leaf_that_grows_is_found_by_its_new_end() -> None:
    tree = BlockTree()
    [leaf] = reached(tree, "abc")
    [other] = reached(tree, "x")
    assert tree.oldest is leaf
    assert tree.append(leaf, chain("de"))
    assert tree.oldest is other, "it has just been used"
    assert tree.ending_with(chain("e")) is leaf
    assert tree.ending_with(chain("c")) is None
    assert tree.blocks == 6
    tree.check_invariants()


def test_a_leaf_does_not_grow_by_what_another_node_begins_with() -> None:
    tree = BlockTree()
    [leaf] = reached(tree, "ab")
    reached(tree, "x")
    assert not tree.append(leaf, chain("x"))
    assert (letters_of([leaf]), tree.blocks) == (["ab"], 3)
    tree.check_invariants()


def test_a_node_is_joined_with_all_ancestors_of_the_same_workers() -> None:
    tree = BlockTree()
    [leaf] = reached(tree, "abcdef")
    tree.split(leaf, 2 * DIGEST_BYTES)
    tree.split(leaf, 2 * DIGEST_BYTES)
    assert sorted(letters_of(tree.nodes)) == ["ab", "cd", "ef"]
    tree.join_upwards(leaf)
    assert letters_of(tree.nodes) == ["abcdef"]
    assert tree.ending_with(chain("b")) is None
    tree.check_invariants()


def test_a_node_that_expects_nobody_any_longer_is_like_one_that_never_did() -> None:
    tree = BlockTree()
    [leaf] = reached(tree, "abcd")
    upper = tree.split(leaf, 2 * DIGEST_BYTES)
    for end in (leaf.forget, leaf.withdraw):
        leaf.expect(1)
        assert not tree.join(leaf)
        end(1)
        assert (leaf.expected, leaf.mask) == (upper.expected, upper.mask)
    assert tree.join(leaf)


def test_blocks_not_expected_at_a_worker_cannot_be_withdrawn_there() -> None:
    node = Node(chain("a"), None)
    node.withdraw(1)
    node.expect(0)
    node.withdraw(1)
    assert (node.expected, node.mask) == ({0: 1}, 1)
