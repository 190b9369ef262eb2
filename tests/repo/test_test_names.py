"""Names of tests state a behaviour: what acts, and what it does."""

import re

from tests.repo.test_text import ROOT

NAME = re.compile(r"def (test_\w+)\(")
VAGUE = re.compile(r"test_what_")


def test_names_of_tests_say_what_acts() -> None:
    names = [name for file in sorted((ROOT / "tests").rglob("test_*.py")) for name in NAME.findall(file.read_text())]
    assert len(names) > 2000, "the search finds"
    assert [name for name in names if VAGUE.match(name)] == []
