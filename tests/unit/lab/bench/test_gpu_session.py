"""Checks in a process that may fail, hang or die: the others run, and no row is lost."""

import json
import sys
from pathlib import Path

import pytest
import torch

from lab.bench.gpu.checks import MORE, QUICK, Check
from lab.bench.gpu.predictions import PREDICTIONS, Prediction
from lab.bench.gpu.report import summary
from lab.bench.gpu.row import Row
from lab.bench.gpu.session import Outcome, Session, Status
from lab.bench.gpu_quick import main
from lab.bench.machine import commit

ROOT = Path(__file__).parents[4]
# A process like lab.bench.gpu.child, whose checks do what their names say.
CHILD = """
import json, os, signal, sys, time
for name in sys.argv[3:]:
    print(json.dumps({"case": name, "figures": {"ms": 1.5}}), flush=True)
    if name == "hangs":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    if name == "dies":
        os.abort()
    print(json.dumps({"ended": name, "failure": "it did" if name == "fails" else ""}), flush=True)
    if name == "fails":
        sys.exit(1)
"""


def run(out: Path, *checks: Check, seconds: float = 300.0) -> list[Outcome]:
    return Session("tiny", out, seconds, [sys.executable, "-c", CHILD]).run(checks)


def test_checks_after_one_that_fails_hangs_or_dies_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.bench.gpu.session.SECONDS_TO_END", 1.0)
    names = ["passes", "fails", "passes", "hangs", "dies", "passes"]
    outcomes = run(tmp_path, *(Check(name, 3.0 if name == "hangs" else 100.0) for name in names))
    assert [outcome.check for outcome in outcomes] == names
    assert [outcome.status is Status.PASSED for outcome in outcomes] == [name == "passes" for name in names]
    assert outcomes[1].failure == "it did"
    assert outcomes[3].failure == "stopped after 3 s"
    assert outcomes[4].failure.startswith("its process ended")
    assert all(outcome.rows == [Row(outcome.check, {"ms": 1.5})] for outcome in outcomes)
    written = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [found["check"] for found in written if "case" in found] == names
    assert [found["status"] for found in written if "status" in found] == [each.status.value for each in outcomes]


def test_a_process_that_never_starts_fails_every_check(tmp_path: Path) -> None:
    outcomes = Session("tiny", tmp_path, 300.0, [sys.executable, "-c", "syntax error"]).run(QUICK)
    assert [outcome.status for outcome in outcomes] == [Status.FAILED] * len(QUICK)
    assert "SyntaxError" in (tmp_path / "log.txt").read_text()


def test_without_time_nothing_is_run(tmp_path: Path) -> None:
    (outcome,) = run(tmp_path, Check("passes", 100.0), seconds=0.0)
    assert (outcome.status, outcome.failure) == (Status.NOT_RUN, "no time was left")


def test_the_table_has_predictions_beside_what_was_measured() -> None:
    rows = [Row("64 requests", {"ms": 9.25, "of_memory": 0.7412})]
    predictions = [
        Prediction("decode", "64 requests", "of_memory", least=0.75),
        Prediction("decode", "64 requests", "ms", 5.0, 10.0),
        Prediction("decode", "128 requests", "ms", most=10.0),
    ]
    table = summary([Outcome("decode", Status.PASSED, 12.3, rows=rows), Outcome("mixed", failure="a|b")], predictions)
    assert "| decode | passed | 12 |\n| mixed | not run: a/b | 0 |\n" in table
    assert table.endswith(
        "| decode | 64 requests | of_memory | ≥ 0.75 | 0.741 | no |\n"
        "| decode | 64 requests | ms | 5 to 10 | 9.25 | yes |\n"
        "| decode | 128 requests | ms | ≤ 10 | not run |  |"
    )


def test_the_page_has_every_check_and_every_prediction() -> None:
    page = (ROOT / "lab/bench/GPU.md").read_text()
    assert all(f"| {check.name} | {check.seconds} | " in page for check in (*QUICK, *MORE))
    assert all(f"| {each.check} | {each.case} | {each.figure} | {each} | " in page for each in PREDICTIONS)


def test_without_git_the_commit_is_the_one_that_was_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() == "unknown"
    monkeypatch.setenv("PATH", "")
    assert commit() == "unknown"
    (tmp_path / "build" / "gpu-pack").mkdir(parents=True)
    (tmp_path / "build" / "gpu-pack" / "commit").write_text("c0ffee1\n")
    assert commit() == "c0ffee1"


def test_a_session_in_the_same_folder_replaces_the_results(tmp_path: Path) -> None:
    for _ in range(2):
        run(tmp_path, Check("passes", 100.0))
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_quick", str(tmp_path / "out")])
    assert main("lab.bench.gpu_quick", "", QUICK, 300.0) == 1
    assert capsys.readouterr().err.endswith("finds no CUDA device; nothing was run\n")
    assert not (tmp_path / "out").exists()
