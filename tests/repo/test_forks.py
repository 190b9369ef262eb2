"""Services of tests: none outlives the run that started it, however that ends."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from tests.forks import ROOT

DEADLINE = 120.0
# A run that starts a service, says its process id, and is killed. The service is this module.
RUN = """
import os, signal
from pathlib import Path
from tests.forks import Fork, Program

fork = Fork(Program("tests.repo.test_forks"), [], dict(os.environ), Path(os.devnull), Path(os.devnull))
print(fork.pid, flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
"""


def main(_: list[str]) -> int:
    """Run for ever."""
    while True:
        signal.pause()


def test_a_service_ends_with_its_run_even_if_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        service = os.pidfd_open(int(run.stdout.readline()))
        try:
            assert not select.select([service], [], [], 0)[0], "it runs while the run does"
            run.stdin.write(b"\n")
            run.stdin.flush()
            assert select.select([service], [], [], DEADLINE)[0], "it outlives the run"
        finally:
            os.close(service)
    assert run.returncode == -signal.SIGKILL
