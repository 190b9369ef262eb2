"""`python -m lab.reproduction`: what is written where, and what is refused before anything is simulated."""

from dataclasses import replace
from pathlib import Path

import pytest

from cli.report import Chart, ChartLine
from lab.reproduction.__main__ import main
from lab.reproduction.item import Finding, Item, Report, Study
from lab.reproduction.sources import Sources
from lab.reproduction.streams import Stream, Streams
from simulation.run import Scenario
from simulation.spec import ClusterSpec
from simulation.traces import SourceMissing

CALLS = Scenario(ClusterSpec(), Streams((Stream(client="a", per_minute=60.0, output_tokens=5, stop=5.0),)))


def small(sources: Sources) -> Study:
    def read(runs: object) -> Report:
        return Report(
            [("n",), (1,)], [Chart("t", "x", "y", [ChartLine("l", [1.0], [1.0])])], [Finding("c", "p", "o", True)]
        )

    return Study("Four calls.", {"calls": CALLS}, read)


def cut_short(sources: Sources) -> Study:
    """Somebody presses Ctrl-C while this is read."""

    def read(runs: object) -> Report:
        raise KeyboardInterrupt

    return Study("Four calls.", {"calls": CALLS}, read)


def lacking(sources: Sources) -> Study:
    raise SourceMissing("needs a folder: --traces or FAIRLEAD_TRACES")


ITEMS = {
    item.name: item for item in (Item("small", "Paper, Figure 1", small), Item("lacking", "Paper, Figure 2", lacking))
}


@pytest.fixture(autouse=True)
def _two_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the papers', which take hours."""
    monkeypatch.setattr("lab.reproduction.__main__.ITEMS", ITEMS)


def run(tmp_path: Path, *options: str) -> int:
    return main(["--out", str(tmp_path / "out"), "--processes", "1", *options])


def test_the_written_report_names_what_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "new" / "report.md"
    assert run(tmp_path, "all", "--markdown", str(document)) == 0
    text = document.read_text()
    assert "## small\n" in text
    assert "| c | p | o | yes |" in text
    assert text.endswith(
        "## Left out\n\nTheir data was not given.\n\n- lacking: needs a folder: --traces or FAIRLEAD_TRACES\n"
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["small.csv", "small.svg"]
    said = capsys.readouterr()
    assert "lacking: left out" in said.err
    assert "#" * 20 not in said.err, "no bar where there is no terminal"


def test_one_item_replaces_its_section_of_the_report_of_all(tmp_path: Path) -> None:
    document = tmp_path / "report.md"
    assert run(tmp_path, "all", "--markdown", str(document)) == 0
    written = document.read_text()
    document.write_text(written.replace("| c | p | o | yes |", "| c | p | stale | yes |"))
    assert run(tmp_path, "small", "--markdown", str(document)) == 0
    assert document.read_text() == written


@pytest.mark.parametrize("text", [None, "everything"])
def test_one_item_does_not_replace_a_report_without_it(
    tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "report.md"
    if text is not None:
        document.write_text(text)
    assert run(tmp_path, "small", "--markdown", str(document)) == 1
    assert capsys.readouterr().err == f"reproduction: --markdown: {document} has no section small: give all\n"
    assert not (tmp_path / "out").exists()
    assert text is None or document.read_text() == text


def test_files_that_cannot_be_written_are_refused_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for options in (
        ("all", "--markdown", str(tmp_path / "file" / "report.md")),
        ("all", "--markdown", str(tmp_path)),
        ("small", "--out", str(tmp_path / "file")),
    ):
        assert run(tmp_path, *options) == 1
        said = capsys.readouterr()
        assert said.err.startswith(f"reproduction: {options[1]}: ")
        assert said.err.count("\n") == 1
        assert said.out == ""


def test_after_ctrl_c_what_is_done_stays_and_what_is_not_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Item("late", "Paper, Figure 3", cut_short)
    monkeypatch.setattr(
        "lab.reproduction.__main__.ITEMS", {**ITEMS, "late": late, "later": replace(late, name="later")}
    )
    document = tmp_path / "report.md"
    document.write_text("everything")
    assert run(tmp_path, "all", "--markdown", str(document)) == 130
    said = capsys.readouterr()
    assert "| c | p | o | yes |" in said.out
    assert (tmp_path / "out" / "small.csv").is_file()
    assert f"interrupted: 1 of 3 items are done, see {tmp_path / 'out'}; not done: late, later\n" in said.err
    assert f"{document} is unchanged" in said.err
    assert document.read_text() == "everything"


def test_data_that_an_item_needs_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "lacking") == 1
    assert capsys.readouterr().err == "reproduction: needs a folder: --traces or FAIRLEAD_TRACES\n"


def test_processes_are_at_least_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(tmp_path, "small", "--processes", "0")
    assert "--processes: '0' is not an integer of at least 1" in capsys.readouterr().err
