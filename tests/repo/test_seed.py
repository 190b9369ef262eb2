"""A run whose tests fail says how to draw its random examples again."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAILING = """
from hypothesis import core

def test_that_fails():
    raise AssertionError(f"drawn from {core.global_force_seed}.")
"""


@pytest.mark.parametrize("processes", ["one", "several"])
def test_a_failing_run_says_from_which_seed_it_drew_and_how_to_repeat_it(tmp_path: Path, processes: str) -> None:
    test = tmp_path / "test_that_fails.py"
    test.write_text(FAILING)
    parallel = ["-p", "tests.parallel", "--parallel"] if processes == "several" else []
    options = ["-q", *parallel, "-p", "tests.seed", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(test)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    said = re.search(r"^hypothesis seed: (\d+)$", output, re.MULTILINE)
    assert said is not None, output
    assert f"drawn from {said[1]}." in output
    assert f"To draw the same examples again: pytest --hypothesis-seed={said[1]}" in output
