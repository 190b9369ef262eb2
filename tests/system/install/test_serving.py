"""What operators install: the command starts a stack from the packages that were installed."""

import signal
from pathlib import Path

import pytest

from tests.system.install.environment import Environment
from tests.unit.cli.commands import Command

pytestmark = pytest.mark.slow


@pytest.mark.e2e
def test_a_stack_runs_where_nothing_but_the_distribution_is(serving: Environment, tmp_path: Path) -> None:
    command = Command(tmp_path, [serving.program("fairlead")], cwd=tmp_path)
    up = command.up("--workers", "1")
    try:
        up.wait_for("ready: gateway")
        generated = command.run("generate", "hello", "--max-tokens", "8")
        assert (generated.returncode, len(generated.stdout.rstrip("\n"))) == (0, 8), generated.stderr
        assert up.end(signal.SIGTERM) == 0
    finally:
        up.close()


@pytest.mark.e2e
def test_a_stack_without_an_engine_says_what_to_install(serving: Environment, tmp_path: Path) -> None:
    command = Command(tmp_path, [serving.program("fairlead")], cwd=tmp_path)
    done = command.run("up", "--workers", "1", "--engine", "transformers")
    assert done.returncode == 1
    assert "engine: transformers needs torch, transformers, accelerate, which the extra `worker` of" in done.stderr


def test_the_version_is_the_distributions(serving: Environment) -> None:
    version = serving.python("-c", "from importlib.metadata import version; print(version('fairlead-serving'))")
    assert serving.python("-m", "cli", "--version") == f"fairlead {version}"
