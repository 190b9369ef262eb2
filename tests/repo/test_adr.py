"""Each architecture decision record has its own number, and its title begins with it."""

import re
from collections import Counter
from pathlib import Path

RECORDS = sorted((Path(__file__).parents[2] / "docs" / "adr").glob("*.md"))


def test_each_number_is_used_once() -> None:
    """ADRs are cited by number, so that a number must name one record."""
    numbers = Counter(record.name[:4] for record in RECORDS)
    assert [number for number, count in numbers.items() if count > 1] == []


def test_titles_begin_with_the_number_of_the_file() -> None:
    """The number in a record's title is that of its file."""
    titles = {record.name: re.match(r"# (\d+)\. ", record.read_text()) for record in RECORDS}
    assert {name: int(title[1]) if title else None for name, title in titles.items()} == {
        name: int(name[:4]) for name in titles
    }
