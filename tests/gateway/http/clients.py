"""Programs of others that call the gateway, each with what it needs in a virtual environment that is kept."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lock import CACHE, exclusively


def python_with(requirement: str) -> Path:
    """The Python of an environment that has `requirement`, as name==version; skips where the index lacks it."""
    environment = CACHE / "clients" / requirement.replace("==", "-")
    with exclusively():
        if not (environment / "ready").exists():
            _install(requirement, environment)
    return environment / "bin" / "python"


def _install(requirement: str, environment: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    command = [
        environment / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        requirement,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No matching distribution" in done.stderr:
        pytest.skip(f"the package index has no {requirement}")
    assert done.returncode == 0, done.stderr
    (environment / "ready").touch()


def run(python: Path, program: str, *arguments: str) -> str:
    """What `program` prints; fails with what it says when it fails."""
    done = subprocess.run([python, "-W", "error", "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
