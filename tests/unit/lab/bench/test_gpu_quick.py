"""`gpu_quick` and `gpu_more` with a tiny model, in an emulation of a machine that has the tree, the pack and an image
with PyTorch."""

import json
import zipfile
from pathlib import Path

import pytest

from lab.bench.gpu.checks import MORE, QUICK
from lab.bench.gpu.pack import WORKER
from tests.unit.lab.bench.bare_machine import BareMachine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> BareMachine:
    return BareMachine(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def worker_machine(tmp_path_factory: pytest.TempPathFactory) -> BareMachine:
    """The machine to which the pack of a whole worker was carried."""
    return BareMachine(tmp_path_factory.mktemp("machine"), WORKER)


def make_pack(folder: Path) -> None:
    """A pack as `make gpu-pack` makes it, with another wheel."""
    (folder / "wheels").mkdir(parents=True)
    with zipfile.ZipFile(folder / "wheels" / "carried-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "")
        wheel.writestr("carried-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
        wheel.writestr("carried-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("carried-1.0.dist-info/RECORD", "")
    (folder / "kernels" / "attention").mkdir(parents=True)
    (folder / "kernels" / "attention" / "attention.so").write_bytes(b"")
    (folder / "commit").write_text("c0ffee1\n")


def test_all_checks_run_where_there_is_only_the_tree_and_the_pack(machine: BareMachine, tmp_path: Path) -> None:
    make_pack(machine.tree / "build" / "gpu-pack")
    out = tmp_path / "out"
    done = machine.run("-m", "lab.bench.gpu_quick", str(out), "--tiny")
    assert done.returncode == 0, done.stdout + done.stderr + (out / "log.txt").read_text()
    assert sorted(path.name for path in out.iterdir()) == ["log.txt", "report.md", "results.jsonl", "tests.txt"]
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [found["check"] for found in results if "status" in found] == [check.name for check in QUICK]
    assert results[0]["figures"]["commit"] == "c0ffee1"
    site = machine.tree / "build" / "gpu-site"
    assert (site / "carried.py").exists()
    assert (site / "flashinfer/data/aot/attention/attention.so").exists()
    table = done.stdout[done.stdout.index("| check |") :]
    assert [line.split(" | ")[1] for line in table.splitlines()[2:]] == ["passed"] * len(QUICK)


def test_the_whole_system_runs_with_what_the_larger_pack_adds(worker_machine: BareMachine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = worker_machine.run("-m", "lab.bench.gpu_more", str(out), "--tiny")
    assert done.returncode == 0, done.stdout + done.stderr + (out / "log.txt").read_text()
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [found["check"] for found in results if "status" in found] == [check.name for check in MORE]
    flooded = next(found["figures"] for found in results if found.get("case") == "beside the flood")
    assert flooded["tokens_per_s"] > 0
    assert 0 < flooded["flood_share"] < 1
    assert sum(1 for path in out.rglob("*") if path.is_file()) <= 8


@pytest.mark.parametrize("program", ["import git", "import redis", "import opentelemetry", "import httptools"])
def test_the_machine_lacks_what_it_should(machine: BareMachine, program: str) -> None:
    assert machine.run("-c", program).returncode != 0


def test_the_machine_has_no_network_and_no_git(machine: BareMachine) -> None:
    connected = machine.run("-c", "import socket; socket.create_connection(('192.0.2.1', 9))")
    assert "no network" in connected.stderr
    assert machine.run("-c", "import shutil; assert not shutil.which('git')").returncode == 0
    assert not (machine.tree / ".git").exists()
