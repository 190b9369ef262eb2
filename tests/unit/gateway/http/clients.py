"""Programs of others that call the gateway, with what they need in virtual environments that are kept."""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.forks import Fork, Program
from tests.lock import CACHE, exclusively

DEADLINE = 600.0  # seconds
# What stands together shares an environment: to fetch one takes long.
ENVIRONMENTS = (
    ("openai==3.54.0", "anthropic==2.12.0", "langchain-openai==1.7.3", "llm==0.36"),
    ("litellm==1.106.2",),  # it works with an older client of OpenAI
    ("lm-eval[api]==0.4.13", "aiperf==0.13.0"),
    ("openai-agents==0.24.0", "langgraph==1.2.24", "langchain-openai==1.7.4", "smolagents==1.26.0"),
    ("aider-chat==0.86.2",),
)
# Programs of which only a part is wanted: all that is installed, without what their packages say that they need.
LOCKED = {"open-webui": Path(__file__).parents[3] / "system/agents/open-webui.txt"}
# What lm-eval's own backend imports. Of its dependencies torch is missing, which the test lends to it.
BARE = {"lm-eval[api]==0.4.13": ("accelerate==1.15.0",)}


def python_with(package: str) -> Path:
    """The Python of an environment that has `package`; skips where the index lacks a part of it."""
    requirements: Sequence[str] = ()
    if package in LOCKED:
        bare = LOCKED[package].read_text().split()
        name = f"{package}-{hashlib.sha256(LOCKED[package].read_bytes()).hexdigest()[:12]}"
    else:
        requirements = next(each for each in ENVIRONMENTS if any(name.startswith(f"{package}==") for name in each))
        bare = [package for each in requirements for package in BARE.get(each, ())]
        name = "_".join([*requirements, *bare]).replace("==", "-")
    environment = CACHE / "clients" / name
    with exclusively(environment.name):
        if not (environment / "ready").exists():
            _install(requirements, bare, environment)
    return environment / "bin" / "python"


def _install(requirements: Sequence[str], bare: Sequence[str], environment: Path) -> None:
    """Install, `bare` without what it needs; and without compiling, for a program imports few of all modules."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", environment], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "--disable-pip-version-check"]
    for options, packages in (((), requirements), (("--no-deps",), bare)):
        if not packages:
            continue
        command = [*pip, "install", "--quiet", "--no-compile", *options, *packages]
        done = subprocess.run(command, capture_output=True, text=True)
        if "No matching distribution" in done.stderr:
            pytest.skip(f"the package index has not all of {', '.join(packages)}")
        assert done.returncode == 0, done.stderr
    (environment / "ready").touch()


def run(client: str, program: str, *arguments: str) -> str:
    """What `program` prints, which finds `client` imported; fails with what it says when it fails."""
    python = (str(python_with(client)), "-W", "error")
    with tempfile.TemporaryDirectory() as folder:
        said, errors = Path(folder, "said"), Path(folder, "errors")
        imported = Program("tests.unit.gateway.http.client_program", client.replace("-", "_"), python)
        status = Fork(imported, [program, *arguments], {**os.environ}, said, errors).wait(DEADLINE)
        assert status == 0, said.read_text() + errors.read_text()
        return said.read_text()
