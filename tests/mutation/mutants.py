"""Mutants of a module: its source with one small wrong change, made by an operator of Cosmic Ray or by one of ours."""

import copy
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator, operator_names

# One or two replacements of each operator of the language. Cosmic Ray has up to eleven, which the same tests kill: a
# core full of additions would count elevenfold. None of bits: cores have `|` in annotations alone.
CHOSEN = re.compile(
    r"core/(AddNot|NumberReplacer|ExceptionReplacer|ZeroIterationForLoop|ReplaceAndWithOr|ReplaceOrWithAnd"
    r"|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceBreakWithContinue|ReplaceContinueWithBreak"
    r"|ReplaceUnaryOperator_Delete_(Not|USub)"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_FloorDiv|Div_Mul|FloorDiv_Mul|Mod_FloorDiv)"
    r"|ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_GtE|LtE_Gt|Gt_LtE|GtE_Lt|Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is))"
)


class DeleteStatement(Operator):
    """Replace an assignment or a call whose value is not used with `pass`."""

    def mutation_positions(self, node: parso.tree.NodeOrLeaf) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the position of `node` if it is such a statement within a function."""
        if node.type == "simple_stmt" and node.search_ancestor("funcdef") is not None:
            statement = node.children[0]
            if statement.type in ("expr_stmt", "atom_expr"):
                yield statement.start_pos, statement.end_pos

    def mutate(self, node: parso.tree.NodeOrLeaf, index: int) -> parso.tree.NodeOrLeaf:
        """Replace the statement and leave what stands before and after it."""
        statement = node.children[0]
        node.children[0] = parso.python.tree.Keyword("pass", statement.start_pos, statement.get_first_leaf().prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return what Cosmic Ray's own tests of operators would read."""
        return (Example("def f():\n    x = 1\n", "def f():\n    pass\n"),)


@dataclass(frozen=True)
class Mutant:
    """One wrong change of a module."""

    module: str
    operator: str
    number: int  # of the changed line
    line: str  # as it is in the code, without indentation
    mutant: str  # what the change makes of it
    source: str  # of the whole module, changed
    place: int = 0  # among those with the same key

    @property
    def key(self) -> tuple[str, str, str]:
        """What names the mutant wherever its line stands; equal lines of a module have mutants with the same key."""
        return self.module, self.line, self.mutant


def mutants(root: Path, module: str) -> Iterator[Mutant]:
    """Yield all mutants of `module`, in a fixed order."""
    source = (root / module).read_text()
    nodes = list(ast_nodes(get_ast(source)))
    operators = [get_operator(name)() for name in sorted(operator_names()) if CHOSEN.fullmatch(name)]
    found = Counter[tuple[str, str, str]]()
    for operator in [*operators, DeleteStatement()]:
        for node in filter(_decides, nodes):
            for index, _ in enumerate(operator.mutation_positions(node)):
                made = _mutant(module, source, operator, node, index)
                yield replace(made, place=found[made.key])
                found[made.key] += 1


def _decides(node: parso.tree.NodeOrLeaf) -> bool:
    """Return whether `node` is code that runs: no constant of a module, which tests read by its name, and no check."""
    function = node.search_ancestor("funcdef")
    return function is not None and function.name.value != "check_invariants"


def _mutant(module: str, source: str, operator: Operator, node: parso.tree.NodeOrLeaf, index: int) -> Mutant:
    """Return the mutant with the change number `index` of `operator` at `node`, whose place in the source is replaced.

    To parse the module anew for each mutant would take longer than the tests that kill it.
    """
    lines = source.splitlines(keepends=True)
    span = node.get_start_pos_of_prefix(), node.end_pos
    start, end = (sum(map(len, lines[: row - 1])) + column for row, column in span)
    changed = source[:start] + operator.mutate(_copy(node), index).get_code() + source[end:]
    before, after = source.splitlines(), changed.splitlines()
    first = next(i for i, (line, other) in enumerate(zip(before, after, strict=False)) if line != other)
    last = next(i for i, (line, other) in enumerate(zip(before[::-1], after[::-1], strict=False)) if line != other)
    was, becomes = (" ".join(map(str.strip, lines[first : len(lines) - last])) for lines in (before, after))
    return Mutant(module, type(operator).__name__, first + 1, was, becomes, changed)


def _copy(node: parso.tree.NodeOrLeaf) -> parso.tree.NodeOrLeaf:
    """Return a copy of `node` with everything below it and the same parent."""
    parent, node.parent = node.parent, None
    copied = copy.deepcopy(node)
    node.parent = copied.parent = parent
    return copied
