"""One seed, one run: the same bytes in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.rehearsal.rehearsal import digest, rehearse

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
PROGRAM = "from lab.rehearsal.rehearsal import digest, rehearse; print([digest(rehearse(seed)) for seed in range(6)])"


def digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_processes_with_different_hash_seeds_agree() -> None:
    assert digests("1") == digests("2")


def test_another_seed_is_another_run() -> None:
    assert digest(rehearse(0)) != digest(rehearse(3))


@pytest.mark.parametrize("field", ["arrival", "worker", "received"])
def test_the_digest_sees_each_field(field: str) -> None:
    journal = rehearse(0)
    before = digest(journal)
    setattr(journal.calls[0], field, 12345)
    assert digest(journal) != before
