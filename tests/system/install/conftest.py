"""Both distributions, built once, and installed into environments of their own."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.system.install.environment import IGNORED, ROOT, Environment, checked


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make build` makes, of a copy: the build leaves files beside the sources."""
    source = tmp_path_factory.mktemp("source") / "checkout"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*IGNORED))
    folder = tmp_path_factory.mktemp("dist")
    for project in (source / "fairlead", source):
        checked([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, project], folder)
    return folder


@pytest.fixture(scope="session")
def sdk(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An application's environment."""
    return Environment(tmp_path_factory.mktemp("sdk") / "venv", *dist.glob("fairlead-*.whl"))


@pytest.fixture(scope="session")
def serving(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An operator's environment; `fairlead` comes with `fairlead-serving`."""
    return Environment(tmp_path_factory.mktemp("serving") / "venv", *dist.glob("fairlead_serving-*.whl"))
