"""`fairlead` itself, and what it says of a model that cannot be one."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli import usage
from cli.__main__ import VERBS, main
from cli.report import Report
from cli.writing import write
from serving.usage_report import UsageRow


def test_without_a_verb_it_prints_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: fairlead")
    assert len(re.findall(r"^    [a-z]+\b", said, re.MULTILINE)) == len(VERBS)


def test_a_reader_that_has_what_it_wants_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main([]) == 0, "as in `fairlead | head`"
    assert capsys.readouterr().err == ""


def test_a_command_without_an_output_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main([]) == 0, "as in `fairlead >&-`"


def test_the_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert re.fullmatch(r"fairlead \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_a_verb_loads_no_other_verb() -> None:
    program = "import sys\nfrom cli.__main__ import main\ntry: main(['status', '--help'])\nfinally: print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    loaded = set(said.splitlines()[-1].split())
    assert loaded.intersection(VERBS.values()) == {"cli.status"}
    assert "simulation" not in loaded


def test_a_model_that_cannot_be_one_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    (tmp_path / "empty").mkdir()
    for model, reason in (
        ("nosuch", "no folder, no hub id (organisation/name), and not the built-in model, smollm2-135m-instruct"),
        (str(tmp_path / "empty"), f"no config.json in {tmp_path / 'empty'}"),
    ):
        assert main(["up", "--model", model, "--log-dir", str(logs)]) == 1
        assert capsys.readouterr() == ("", f"fairlead: --model {model}: {reason}\n")
    assert not logs.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--scheduler"],
        ["drain", "w0", "--scheduler"],
        ["flush", "w0", "--scheduler"],
        ["top", "--frames", "1", "--scheduler"],
        ["trace", "id", "--gateway"],
    ],
)
def test_a_service_that_does_not_run_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "127.0.0.1:1", "--secret", "x"]) == 1
    assert capsys.readouterr().err == "fairlead: 127.0.0.1:1: connection refused; is `fairlead up` running?\n"


def test_a_name_that_the_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user's name would else end the operators' reports about all."""
    rows = [UsageRow("2026-11-01", "acme", "Zo\u00eb", "a", "m", 1, 0, 0, 0, 1, 0, 0, 1.0)]
    monkeypatch.setattr(usage, "_usage", lambda *_: ("ledger", rows))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written := io.BytesIO(), encoding="ascii"))
    assert main(["usage", "--gateway", "127.0.0.1:1", "--by", "user", "--format", "csv"]) == 0
    assert b"Zo\\xeb,1," in written.getvalue()


def test_names_of_a_trace_are_no_formulas_in_what_is_written(tmp_path: Path) -> None:
    write(tmp_path, "clients", Report([["client", "gap"], ["=1+1", -0.5]]))
    assert (tmp_path / "clients.csv").read_text().splitlines() == ["client,gap", "'=1+1,-0.5"]
