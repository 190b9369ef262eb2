"""Every example runs against a real stack."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stack import Stack

EXAMPLES = sorted(Path("examples").glob("*.py"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Stack(workers=1, log_dir=tmp_path_factory.mktemp("logs"), model="tiny", engine="fake") as stack:
        yield stack.gateway


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"generate", "agent"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, gateway: str) -> None:
    done = subprocess.run([sys.executable, str(example), gateway], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not done.stderr
