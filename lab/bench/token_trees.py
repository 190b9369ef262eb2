"""The reference of lab/bench/dispatch: the paper's index, a radix tree over tokens for each worker, matched one by one.

It is plain and correct, in the form in which SGLang's router and the paper describe it: children by first token, edges
as token tuples, splits where prompts diverge. The scheduler uses nothing of it.
"""

from collections.abc import Sequence

Tokens = tuple[int, ...]


class Branch:
    """An edge of the tree with its subtree."""

    __slots__ = ("children", "tokens")

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.children: dict[int, Branch] = {}


class TokenTree:
    """The prompts that one worker is expected to hold."""

    def __init__(self) -> None:
        self.root = Branch(())

    def match(self, prompt: Tokens) -> int:
        """Return the number of tokens of the longest known prefix."""
        branch, position = self.root, 0
        while position < len(prompt):
            child = branch.children.get(prompt[position])
            if child is None:
                break
            common = _common(child.tokens, prompt, position)
            position += common
            if common < len(child.tokens):
                break
            branch = child
        return position

    def insert(self, prompt: Tokens) -> None:
        """Insert a prompt (Algorithm 2, line 18)."""
        branch, position = self.root, 0
        while position < len(prompt):
            child = branch.children.get(prompt[position])
            if child is None:
                branch.children[prompt[position]] = Branch(prompt[position:])
                return
            common = _common(child.tokens, prompt, position)
            if common < len(child.tokens):
                lower = Branch(child.tokens[common:])
                lower.children = child.children
                child.tokens, child.children = child.tokens[:common], {lower.tokens[0]: lower}
            position += common
            branch = child

    def evict(self, prompt: Tokens, tokens: int) -> None:
        """Remove the last `tokens` of `prompt`, which end at a leaf (Algorithm 2, line 27)."""
        path = [self.root]
        position = 0
        while position < len(prompt):
            child = path[-1].children.get(prompt[position])
            if child is None:
                return
            path.append(child)
            position += len(child.tokens)
        leaf, parent = path[-1], path[-2]
        if leaf.children:
            return
        if len(leaf.tokens) > tokens:
            leaf.tokens = leaf.tokens[:-tokens]
        else:
            del parent.children[leaf.tokens[0]]


class TokenTrees:
    """The radix trees `R` of Algorithm 2, with SELECTWORKER's argmin as a loop."""

    def __init__(self, workers: int) -> None:
        self.trees = [TokenTree() for _ in range(workers)]

    def longest(self, prompt: Tokens) -> Sequence[int]:
        """Return the workers with the longest match (LONGESTMATCHWORKERS)."""
        lengths = [tree.match(prompt) for tree in self.trees]
        longest = max(lengths)
        return [worker for worker, length in enumerate(lengths) if length == longest]


def _common(edge: Tokens, prompt: Tokens, position: int) -> int:
    if prompt[position : position + len(edge)] == edge:
        return len(edge)
    for index, token in enumerate(edge):
        if position + index == len(prompt) or prompt[position + index] != token:
            return index
    return len(edge)
