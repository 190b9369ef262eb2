"""The project's tests that need a CUDA device, in a process of their own."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab.bench.gpu.row import CheckFailed, Row
from lab.bench.gpu.subject import Subject

ROOT = Path(__file__).parents[4]
# Enough of the project's configuration for these tests, without the plugins that others need.
CONFIGURATION = "[pytest]\nmarkers =\n    gpu: needs a CUDA device\n    slow: computes for long\n"
COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)")


def rows(subject: Subject) -> Iterator[Row]:
    """Yield how many tests passed, failed and were skipped; `tests.txt` has the rest. Raise CheckFailed if one
    failed."""
    log = subject.out / "tests.txt"
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "pytest.ini"
        configuration.write_text(CONFIGURATION)
        status = _run(configuration, log)
    summary = log.read_text().strip().rpartition("\n")[2]
    none = {"passed": 0, "failed": 0, "skipped": 0}
    yield Row("tests/system/gpu", none | {name: int(count) for count, name in COUNT.findall(summary)})
    if status:
        raise CheckFailed(f"pytest ended with {status}: {summary}"[:200])


def _run(configuration: Path, log: Path) -> int:
    """Run the tests, and return the exit status of pytest."""
    pytest = [sys.executable, "-m", "pytest", "--noconftest", "-c", str(configuration), f"--rootdir={ROOT}", "-v"]
    options = ["--import-mode=importlib", "-p", "no:cacheprovider", "--durations=10", "tests/system/gpu"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with log.open("w") as text:
        command = [*pytest, *options]
        return subprocess.run(command, cwd=ROOT, env=environment, stdout=text, stderr=text, check=False).returncode
