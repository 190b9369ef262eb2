"""The pages on what Fairlead stands before: one for each starting point, and each ends in a command."""

from tests.repo.test_text import ROOT

PAGES = sorted((ROOT / "docs" / "in-front").glob("*.md"))


def test_there_is_a_page_for_each_starting_point_that_ends_in_a_command() -> None:
    assert {page.stem for page in PAGES} == {"vllm", "envoy-gateway", "own-gateway"}
    assert [page.stem for page in PAGES if not page.read_text().rstrip().endswith("```")] == []
