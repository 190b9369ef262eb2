"""What tests import and no mutant of a core changes: a process that tests the mutants loads it once."""

import ast
from collections.abc import Iterator
from pathlib import Path


def unaffected(tests: list[Path], changed: list[Path]) -> list[str]:
    """Return the modules that `tests` import, directly or not, and that import none of the modules `changed`.

    All are modules below the working directory, and so are the paths.
    """
    imports: dict[str, set[str]] = {}
    found = {_name(path) for path in tests}
    while new := {name for name in found if name not in imports}:
        imports |= {name: {*filter(_path, _imports(name))} for name in new}
        found.update(*(imports[name] for name in new))
    affected = {_name(path) for path in (*tests, *changed)}
    while more := {name for name in imports.keys() - affected if imports[name] & affected}:
        affected |= more
    return sorted(imports.keys() - affected)


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _path(name: str) -> Path | None:
    """Return the file of a module, None if there is none below the working directory."""
    path = Path(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _imports(name: str) -> Iterator[str]:
    """Yield the names that the module imports, modules or not, and the packages before each of them."""
    path = _path(name)
    names = [name]
    for node in ast.walk(ast.parse(path.read_text() if path is not None else "")):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    for parts in (each.split(".") for each in names):
        yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
