"""The Dockerfiles' first form: every package is copied, and nothing outside the repository."""

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.forms import FORMS, Manifest, services

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["control-plane", "worker", "worker-cuda"])
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


@pytest.mark.parametrize("name", ["control-plane", "worker", "worker-cuda"])
def test_images_run_without_rights_and_are_pinned(name: str) -> None:
    lines = (ROOT / "deploy" / "docker" / f"Dockerfile.{name}").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert all(re.fullmatch(r"docker\.io/\S+:\S*\d\S*", base) for base in bases), "a registry and a version"
    last = "\n".join(lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :])
    assert "\nUSER 10001:10001\n" in last
    installs = [line for line in lines if "pip install" in line]
    assert installs
    assert all(re.search(r" -[cr] ", line) for line in installs), "every install is held by a file of pins"


def test_manifests_name_the_images_that_are_built(render: Callable[[str], list[Manifest]]) -> None:
    text = "".join(path.read_text() for path in (ROOT / "deploy" / "docker").iterdir())
    built = set(re.findall(r"-t (fairlead/\S+:\S+)", text))
    used = {container["image"] for form in FORMS for container in services(render(form))}
    assert used == built
