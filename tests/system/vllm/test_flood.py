"""The flood test over a small model: vLLM's own server and Fairlead over its executor answer the same client."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.faults.small_model import save_small_model

pytestmark = pytest.mark.e2e
SYSTEMS = ["vLLM, priority", "Fairlead over vLLM, DLPM"]
ROOT = Path(__file__).parents[3]


def test_systems_are_started_called_and_compared(tmp_path: Path) -> None:
    model = save_small_model(tmp_path / "small")
    command = [sys.executable, "-m", "lab.bench.flood", "--systems", *SYSTEMS, "--model", str(model), "--threads", "1"]
    command += ["--alone-seconds", "5", "--seconds", "10", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines() if "/" in line and "|" in line][
        1:
    ] == SYSTEMS
    found = json.loads((tmp_path / "out" / "flood.json").read_text())
    assert [system["figures"]["system"] for system in found["systems"]] == SYSTEMS
    assert all(f"| {name} |" in done.stdout for name in SYSTEMS)
    for system in found["systems"]:
        assert system["figures"]["output_per_second"] > 0
        assert {call["user"] for call in system["flooded"]["calls"] if call["done"]} >= {"flood"}
    assert (tmp_path / "out" / "flood.svg").exists()
