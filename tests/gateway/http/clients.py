"""Programs of others that call the gateway, each with what it needs in a virtual environment that is kept."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / ".cache" / "clients"


def python_with(requirement: str) -> Path:
    """The Python of an environment that has `requirement`, as name==version; skips where the index lacks it."""
    environment = FOLDER / requirement.replace("==", "-")
    python = environment / "bin" / "python"
    ready = environment / "ready"
    if ready.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No matching distribution" in done.stderr:
        pytest.skip(f"the package index has no {requirement}")
    assert done.returncode == 0, done.stderr
    ready.touch()
    return python


def run(python: Path, program: str, *arguments: str) -> str:
    """What `program` prints; fails with what it says when it fails."""
    done = subprocess.run([python, "-W", "error", "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
