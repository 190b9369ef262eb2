"""Mutants of a module: its source with one small wrong change, made by an operator of Cosmic Ray or by one of ours."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import parso
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
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

    @property
    def key(self) -> tuple[str, str, str]:
        """What names the mutant wherever its line stands."""
        return self.module, self.line, self.mutant


def positions(root: Path, module: str) -> list[tuple[str, Operator, int]]:
    """Return where `module` can be changed: its path, an operator and the occurrence, in a fixed order."""
    nodes = list(ast_nodes(get_ast_from_path(root / module)))
    operators = [get_operator(name)() for name in sorted(operator_names()) if CHOSEN.fullmatch(name)]
    found = []
    for operator in [*operators, DeleteStatement()]:
        changeable = (node for node in nodes for _ in operator.mutation_positions(node))
        found += [(module, operator, occurrence) for occurrence, node in enumerate(changeable) if _decides(node)]
    return found


def _decides(node: parso.tree.NodeOrLeaf) -> bool:
    """Return whether `node` is code that runs: no constant of a module, which tests read by its name, and no check."""
    function = node.search_ancestor("funcdef")
    return function is not None and function.name.value != "check_invariants"


def mutant(root: Path, module: str, operator: Operator, occurrence: int) -> Mutant:
    """Return the mutant at one of the positions."""
    source = (root / module).read_text()
    changed = mutate_code(source, operator, occurrence)
    before, after = source.splitlines(), changed.splitlines()
    first = next(i for i, (line, other) in enumerate(zip(before, after, strict=False)) if line != other)
    last = next(i for i, (line, other) in enumerate(zip(before[::-1], after[::-1], strict=False)) if line != other)
    was, becomes = (" ".join(map(str.strip, lines[first : len(lines) - last])) for lines in (before, after))
    return Mutant(module, type(operator).__name__, first + 1, was, becomes, changed)
