"""What `pip install .` brings: no Rust, none of the worker's world, and a control plane that starts with it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.install.rust import rust_in

ROOT = Path(__file__).parents[2]
IGNORED = [".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().split())]
WORKERS_WORLD = ("torch", "transformers", "tokenizers", "numpy", "pydantic", "orjson", "cryptography")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with what the control plane's images have."""
    # Built from a copy: a build in place leaves a build/ behind, from which the next one would take deleted modules.
    source = tmp_path_factory.mktemp("source") / "fairlead"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*IGNORED))
    folder = tmp_path_factory.mktemp("install") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    constraints = ROOT / "constraints" / "control-plane.txt"
    command = [str(folder / "bin" / "pip"), "install", "--quiet", "--constraint", str(constraints), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_control_plane_is_rust_free(control_plane: Path) -> None:
    (site_packages,) = control_plane.glob("lib/python3*/site-packages")
    assert rust_in(site_packages) == {}


def test_the_scan_finds_rust_where_it_is() -> None:
    """This environment has the worker's and the developers' packages."""
    found = rust_in(Path(sysconfig.get_path("platlib")))
    assert {"tokenizers", "safetensors", "ruff"} <= set(found)
    assert "grpcio" not in found


def test_constraints_pin_all_that_is_installed(control_plane: Path) -> None:
    command = [str(control_plane / "bin" / "pip"), "freeze", "--exclude", "fairlead"]
    installed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    lines = (ROOT / "constraints" / "control-plane.txt").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if not line.startswith("#")]
    # What only some versions of Python need is pinned with a marker.
    expected = {f"{each.name}{each.specifier}" for each in pinned if each.marker is None or each.marker.evaluate()}
    assert set(installed) == expected


def test_control_plane_imports_nothing_of_the_workers_world(control_plane: Path) -> None:
    code = (
        "import sys, fairlead, throttler, gateway.app, global_scheduler.app\n"
        f"print([name for name in {WORKERS_WORLD!r} if name in sys.modules])"
    )
    assert _python(control_plane, "-c", code) == "[]\n"


@pytest.mark.parametrize("module", ["gateway", "global_scheduler"])
def test_control_plane_services_start_their_command_lines(control_plane: Path, module: str) -> None:
    assert f"usage: python -m {module}" in _python(control_plane, "-m", module, "--help")


def _python(environment: Path, *arguments: str) -> str:
    """Run in the file system's root, so that the installed packages are imported and not the checkout's."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(environment / "bin" / "python"), *arguments], capture_output=True, text=True, cwd="/", env=variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
