"""No file says on whose machine it was written, holds what a merge left behind, or names a module that is gone."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
IGNORED = {".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().split())}
TEXT = {".py", ".pyi", ".md", ".toml", ".txt", ".yaml", ".yml", ".proto", ".env", ".sh", ""}
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+|opt/(?:pypi|wheels))/")
MODULES = re.compile(r"`((?:\w+/)*\w+\.py)`")  # as documents name them: from any folder on
LEFT_BEHIND = re.compile(r"^(?:<{7}|>{7}|={7})(?: |$)", re.MULTILINE)


def text_files(folder: Path = ROOT) -> Iterator[Path]:
    """What belongs to the repository and is text."""
    for path in sorted(folder.iterdir()):
        if any(path.match(pattern) for pattern in IGNORED):
            continue
        if path.is_dir():
            yield from text_files(path)
        elif path.suffix in TEXT or path.name.startswith("Dockerfile"):
            yield path


def test_no_machine_paths() -> None:
    assert _matches(MACHINE_PATHS) == []


def test_no_conflict_markers() -> None:
    assert _matches(LEFT_BEHIND) == []


def test_documents_name_modules_that_exist() -> None:
    modules = [f"/{path.relative_to(ROOT)}" for path in text_files() if path.suffix == ".py"]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "lab/bench/README.md", *(ROOT / "docs").glob("*.md")]
    named = [(page.name, name) for page in pages for name in MODULES.findall(page.read_text())]
    assert named
    assert [(page, name) for page, name in named if not any(module.endswith(f"/{name}") for module in modules)] == []


def test_the_search_can_find() -> None:
    assert MACHINE_PATHS.search("see /" + "work/notes")
    assert LEFT_BEHIND.search("a\n" + "<" * 7 + " ours\n")
    assert ROOT / "Makefile" in list(text_files())


def _matches(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {match[0]}" for path in text_files() for match in pattern.finditer(path.read_text())
    ]
