"""What the distributions bring: no Rust, none of the worker's world, and a control plane that starts with it."""

from importlib.metadata import distribution, distributions

import pytest
from packaging.requirements import Requirement

from tests.system.install.environment import PINS, Environment
from tests.system.install.rust import rust_in

pytestmark = pytest.mark.slow

WORKERS_WORLD = ("torch", "transformers", "tokenizers", "numpy", "pydantic", "orjson", "cryptography")


def test_control_plane_is_rust_free(serving: Environment) -> None:
    assert rust_in(distributions(path=[str(serving.site_packages)])) == {}


def test_the_scan_finds_rust_where_it_is() -> None:
    """This environment has the worker's and the developers' packages."""
    found = rust_in(distribution(name) for name in ("tokenizers", "safetensors", "ruff", "grpcio", "numpy"))
    assert set(found) == {"tokenizers", "safetensors", "ruff"}


def test_constraints_pin_all_that_is_installed(serving: Environment) -> None:
    pinned = [Requirement(line) for line in PINS.read_text().splitlines() if not line.startswith("#")]
    # What only some versions of Python need is pinned with a marker.
    expected = {f"{each.name}{each.specifier}" for each in pinned if each.marker is None or each.marker.evaluate()}
    others = {line for line in serving.installed() if not line.startswith("fairlead")}
    assert others == expected


def test_control_plane_imports_nothing_of_the_workers_world(serving: Environment) -> None:
    code = (
        "import sys, fairlead, throttler, gateway.app, global_scheduler.app\n"
        f"print([name for name in {WORKERS_WORLD!r} if name in sys.modules])"
    )
    assert serving.python("-c", code) == "[]\n"


@pytest.mark.parametrize("module", ["gateway", "global_scheduler"])
def test_control_plane_services_start_their_command_lines(serving: Environment, module: str) -> None:
    assert f"usage: python -m {module}" in serving.python("-m", module, "--help")
