"""The verbs of the Makefile: listed by `make help`, and the ones that the documents name."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def phony_verbs() -> set[str]:
    """What the Makefile declares."""
    return set(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split())


def test_help_lists_every_verb() -> None:
    listed = subprocess.run(["make", "-s", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in listed.splitlines()} == phony_verbs()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_name_verbs_that_exist(document: Path) -> None:
    named = set(re.findall(r"(?:`|^\s*)make ([a-z][a-z-]*)", document.read_text(), re.MULTILINE))
    assert named <= phony_verbs()


def test_readme_names_the_first_verbs() -> None:
    assert all(f"make {verb}" in (ROOT / "README.md").read_text() for verb in ("demo", "test"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_link_to_files_that_exist(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []
