"""Refuse public docstrings that are fragments or vague: `python docs/docstrings.py [PREFIX ...]` lists them; status 1.

A reader whose third language is English needs a sentence with a verb and its object. The docstring of a property or a
class may be a noun phrase, as in PEP 257, but not one of a few words that only the signature explains.
docstring_verbs.txt holds the verbs with which a short sentence may begin.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = (
    "bench", "cli", "fairlead", "gateway", "global_scheduler", "local_worker", "reproduction", "serving", "simulation",
    "throttler",
)  # fmt: skip
ROOT = Path(__file__).parents[1]
FEWEST_WORDS = 6  # of a first sentence that does not begin with a verb
VAGUE = re.compile(r"\b([Ww]hoever|[Nn]obody|believes?|hears?)\b")  # which client or process acts is not said
FRAGMENTS = frozenset(
    {
        *("Also", "And", "As", "At", "By", "For", "From", "In", "Its", "Nothing", "Of", "On", "So", "To", "With"),
        *("How", "What", "When", "Where", "Which", "Who", "Whose"),
    }
)
VERBS = frozenset((Path(__file__).parent / "docstring_verbs.txt").read_text().split())


def main() -> int:
    """Print each offending docstring with its place, and return the exit status."""
    prefixes = tuple(sys.argv[1:]) or PACKAGES
    offences = [offence for path in sources(prefixes) for offence in fragments(path)]
    print(*offences, sep="\n", end="\n" if offences else "")
    return 1 if offences else 0


def sources(prefixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield the hand-written modules whose paths begin with one of `prefixes`."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name.startswith(prefixes) and "_pb2" not in name:
                yield path


def fragments(path: Path) -> Iterator[str]:
    """Yield one line for each public class or function of `path` whose docstring is missing, a fragment or vague."""
    for node in public(ast.parse(path.read_text())):
        place = f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        text = ast.get_docstring(node)
        if text is None:
            yield f"{place}: has no docstring"
        elif is_fragment(text):
            yield f"{place}: {text.splitlines()[0]!r} is no sentence"
        elif vague := VAGUE.search(text):
            yield f"{place}: {vague[0]!r} does not say which client or process acts"


def public(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the classes and functions of a module, and the methods of these classes, whose names have no underscore."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                    yield inner


def is_fragment(text: str) -> bool:
    """Return whether the first sentence is too short to have a verb and an object, or begins like a fragment."""
    sentence = text.split("\n\n")[0].replace("\n", " ").split(". ")[0]
    words = sentence.split()
    if words[0] == "See":
        return len(words) < 2
    if words[0] in VERBS:
        return len(words) < 2
    return words[0] in FRAGMENTS or len(words) < FEWEST_WORDS


if __name__ == "__main__":
    sys.exit(main())
