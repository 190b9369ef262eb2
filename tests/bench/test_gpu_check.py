"""The check on a CUDA device: what can be tried without one."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.gpu_check import PARTS, Outcome, Part, Status, report, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_so_and_runs_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.gpu_check", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("finds no CUDA device; nothing was run")
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()


def part(program: str, *needs: str) -> Part:
    return Part("a part", ("-c", program), needs)


def test_a_part_passes_with_what_it_prints(tmp_path: Path) -> None:
    program = "import sys; print('| a |'); print('noise', file=sys.stderr)"
    outcome = run(part(program), tmp_path / "log")
    assert (outcome.status, outcome.text) == (Status.PASSED, "| a |\n")
    assert (tmp_path / "log").read_text() == "noise\n"


def test_a_part_that_fails_names_its_status_and_log(tmp_path: Path) -> None:
    outcome = run(part("import sys; print('half'); sys.exit(3)"), tmp_path / "log")
    assert outcome.status is Status.FAILED
    assert outcome.text.startswith("half\n")
    assert f"status 3; standard error is in {tmp_path / 'log'}" in outcome.text


def test_a_part_without_its_modules_is_not_run(tmp_path: Path) -> None:
    outcome = run(part("raise SystemExit(1)", "json", "no_such_module"), tmp_path / "log")
    assert (outcome.status, outcome.text) == (Status.NOT_RUN, "no_such_module is not installed")


def test_the_report_has_the_machine_a_summary_and_every_part() -> None:
    passed = Outcome(PARTS[0], Status.PASSED, 12.3, f"before\n\n{TABLE}\nafter\n")
    missing = Outcome(PARTS[1], Status.NOT_RUN, 0.0, "vllm is not installed")
    text = report(["device: H100, 580.1", "torch 2.13.0"], [passed, missing])
    assert "- device: H100, 580.1\n- torch 2.13.0\n" in text
    assert f"| {PARTS[0].title} | passed | 12 |\n| {PARTS[1].title} | not run | 0 |\n" in text
    assert f"```\nbefore\n\n```\n\n{TABLE}\n\n```\nafter\n```" in text
    assert text.endswith("```\nvllm is not installed\n```\n")


@pytest.mark.parametrize("checked", PARTS, ids=lambda part: part.title)
def test_every_part_names_something_that_exists(checked: Part) -> None:
    _, module, *rest = checked.arguments
    where = rest[-1] if module == "pytest" else f"{module.replace('.', '/')}.py"
    assert (ROOT / where).exists()
