"""Documents are short, and their links lead somewhere."""

import re
from pathlib import Path

from tests.repo.test_text import ROOT, text_files

MOST_WORDS = 60_000
ELSEWHERE = {
    *(ROOT / name for name in ("lab", "tests", "changes", "CHANGELOG.md")),
    ROOT / "gateway" / "page" / "static" / "vendor",
}
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md" and not {path, *path.parents} & ELSEWHERE]


def anchors(text: str) -> set[str]:
    """The names that GitHub gives the headings of a document."""
    headings = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found) for found in HEADING.findall(FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(path: Path) -> list[str]:
    found = []
    for name, anchor in LINK.findall(FENCE.sub("", path.read_text())):
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            found.append(f"{name}#{anchor}" if anchor else name)
    return found


def test_documents_outside_the_laboratory_have_at_most_60_000_words() -> None:
    """Changes, which repeat what documents say, and the laboratory's pages of figures do not count."""
    words = {str(path.relative_to(ROOT)): len(path.read_text().split()) for path in documents()}
    assert "docs/operations.md" in words
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda each: -each[1])[:10]


def test_links_of_documents_lead_somewhere() -> None:
    pages = [path for path in text_files() if path.suffix == ".md" and "vendor" not in path.parts]
    assert {str(path.relative_to(ROOT)): links for path in pages if (links := broken(path))} == {}


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A B\n[here](#a-b) [no](#c) [gone](b.md) [it](a.md#a-b)\n")
    assert broken(tmp_path / "a.md") == ["#c", "b.md"]
