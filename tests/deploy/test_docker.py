"""The Dockerfiles' first form: every package is copied, and nothing outside the repository."""

import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["control-plane", "worker"])
def test_dockerfile_copies_every_package(name: str) -> None:
    text = (ROOT / "deploy" / "docker" / f"Dockerfile.{name}").read_text()
    copied = {
        source
        for line in text.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in shlex.split(line)[1:-1]
    }
    assert [source for source in sorted(copied) if not (ROOT / source).exists()] == []
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {pattern.rstrip("*") for pattern in patterns if (ROOT / pattern.rstrip("*") / "__init__.py").exists()}
    assert packages <= copied
