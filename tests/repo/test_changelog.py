"""Every change is a line of its own file, and a release joins them into the changelog."""

import datetime
import re

import pytest

from docs.changelog import fragments, joined
from tests.repo.test_text import ROOT

MOST_WORDS = 25
RELEASES = ROOT / "CHANGELOG.md"


def faults(text: str) -> list[str]:
    """What is wrong with the text of a change."""
    words = re.sub(r"\]\([^)]*\)", "]", text.removeprefix("- ")).split()
    return [
        *([] if re.fullmatch(r"- [^\n]+\.\n", text) else ["is not one line '- Sentence.'"]),
        *([] if len(words) <= MOST_WORDS else [f"has {len(words)} words"]),
    ]


def test_a_fragment_is_one_line_of_at_most_25_words() -> None:
    assert {
        file.name: faults(file.read_text()) for file in fragments(ROOT / "changes") if faults(file.read_text())
    } == {}


def test_a_released_change_is_one_line_of_at_most_25_words() -> None:
    recent, _, _ = RELEASES.read_text().partition("## [0.2.0]")
    lines = [line + "\n" for line in recent.splitlines() if line.startswith("- ")]
    assert lines
    assert {line: faults(line) for line in lines if faults(line)} == {}


@pytest.mark.parametrize("text", ["Sentence.\n", "- Sentence\n", "- One.\n- Two.\n", f"- {'word ' * 26}end.\n"])
def test_a_change_that_is_not_one_short_line_is_found(text: str) -> None:
    assert faults(text)


def test_only_fragments_stand_in_their_folder() -> None:
    assert [path.name for path in (ROOT / "changes").glob("*") if path.suffix != ".md"] == []


def test_no_change_stands_in_the_changelog_before_a_release_has_it() -> None:
    before, _, _ = RELEASES.read_text().partition("\n## [")
    assert "\n- " not in before


def test_a_release_stands_above_the_others_with_links_from_the_root() -> None:
    lines = ["- A [b](../docs/b.md).\n", "- C.\n"]
    released = joined(
        "# Changelog\n\nText.\n\n## [0.1.0] - 2026-01-01\n\n- Old.\n", lines, "0.2.0", datetime.date(2026, 2, 3)
    )
    assert released == (
        "# Changelog\n\nText.\n\n## [0.2.0] - 2026-02-03\n\n- A [b](docs/b.md).\n- C.\n"
        "\n## [0.1.0] - 2026-01-01\n\n- Old.\n"
    )
    with pytest.raises(ValueError, match=r"has 0\.2\.0 already"):
        joined(released, lines, "0.2.0", datetime.date(2026, 2, 4))
