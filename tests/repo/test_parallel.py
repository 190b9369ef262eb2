"""`pytest --parallel`: every test runs once and is reported, also when a process ends with its test."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALL_KINDS = """
import os, pytest

@pytest.fixture(scope="module", autouse=True)
def written(tmp_path_factory):
    yield
    (tmp_path_factory.mktemp("down") / "down").touch()

@pytest.mark.parametrize("number", range(3))
def test_that_passes(number):
    print("unseen")

def test_that_fails(capfd):
    os.system("echo told by the failing one")
    assert capfd.readouterr().out == "told by the failing one\\n"
    print("seen")
    raise AssertionError(f"in process {os.getpid()} of {os.getppid()}")

@pytest.mark.skip(reason="for a reason")
def test_that_is_skipped():
    pass
"""
TOGETHER = """
import multiprocessing, pytest

begun = multiprocessing.get_context("fork").Barrier(3)

@pytest.fixture(scope="module", autouse=True)
def all_files_have_begun():
    begun.wait()
"""
ENDING = """
import os, signal

def test_before():
    pass

def test_with_which_its_process_ends():
    os.kill(os.getpid(), signal.SIGKILL)

def test_behind():
    pass
"""


def run(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "tests.parallel",
        "--parallel",
        "-p",
        "no:cacheprovider",
    ]
    command += [f"--basetemp={folder / 'temp'}", *options, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_test_is_run_once_and_reported(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(ALL_KINDS)
    (tmp_path / "conftest.py").write_text(TOGETHER)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "3 failed, 9 passed, 3 skipped" in done.stdout
    assert done.stdout.count("\nseen\n") == 3
    assert "unseen" not in done.stdout
    assert "for a reason" in done.stdout
    processes = {
        line.split("in process ")[1]
        for line in done.stdout.splitlines()
        if line.startswith("E  ") and "in process" in line
    }
    assert len(processes) == 3, "one file in each"
    assert len([*(tmp_path / "temp").glob("down[0-9]/down")]) == 3, "fixtures are torn down"


def test_after_the_first_failure_no_file_is_begun(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"test_{number:02}.py").write_text(ALL_KINDS)
    done = run(tmp_path, "--exitfirst")
    assert done.returncode == 1
    assert "stopping after" in done.stdout
    assert "test_19.py" not in done.stdout


def test_a_process_that_ends_with_its_test_fails_the_run_and_not_the_other_tests(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(ENDING)
    (tmp_path / "test_b.py").write_text(ALL_KINDS)
    done = run(tmp_path)
    assert done.returncode == 2
    assert "1 failed, 4 passed, 1 skipped" in done.stdout
    assert "a process ended, 2 tests did not" in done.stdout
    assert "test_with_which_its_process_ends" in done.stdout
