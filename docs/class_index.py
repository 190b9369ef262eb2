"""Write the index of public classes into docs/glossary.md: `python docs/class_index.py`.

A class stands under its package with the first sentence of its docstring. Names are unique over all packages of the
product, so that one word means one thing; ValueError names those that are not.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "glossary.md"
PACKAGES = ("fairlead", "serving", "gateway", "throttler", "global_scheduler", "local_worker", "simulation", "cli")
INDEX = re.compile(r"(?<=<!-- written by docs/class_index.py -->\n).*?(?=<!-- end of the index -->)", re.DOTALL)


def index(root: Path) -> str:
    """Return the tables of all public classes below `root`; raises ValueError when two classes share a name."""
    places: dict[str, list[str]] = defaultdict(list)
    tables = []
    for package in PACKAGES:
        rows = list(_rows(root, package))
        for name, module, _ in rows:
            places[name].append(f"{package}/{module}")
        lines = [f"| {name} | `{module}.py` | {summary} |" for name, module, summary in sorted(rows)]
        tables.append("\n".join([f"### {package}", "", "| class | module | what it is |", "|---|---|---|", *lines, ""]))
    shared = {name: modules for name, modules in places.items() if len(modules) > 1}
    if shared:
        raise ValueError(f"classes of one name in several modules: {shared}")
    return "\n".join(["", *tables])


def _rows(root: Path, package: str) -> Iterator[tuple[str, str, str]]:
    for path in sorted((root / package).rglob("*.py")):
        module = path.relative_to(root).with_suffix("").as_posix()
        if "_pb2" in module:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, module.removeprefix(f"{package}/"), _summary(node)


def _summary(node: ast.ClassDef) -> str:
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.;:])\s", text)[0].rstrip(".;:").replace("|", "\\|")


def rewritten(page: str, root: Path) -> str:
    """Return `page` with the current index; raises ValueError when it does not have exactly one place for it."""
    page, count = INDEX.subn(lambda _: index(root), page)
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} places for the index, not 1")
    return page


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(), ROOT))
