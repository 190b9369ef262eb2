"""vLLM's executor beside our engine, where vLLM is installed."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from lab.bench.gpu.row import CheckFailed, Row
from lab.bench.gpu.subject import Subject

EXACTNESS = ("-m", "pytest", "-q", "--show-capture=no", "tests/system/vllm/test_exactness.py")
SPEED = ("-m", "lab.bench.vllm_engine", "--device", "cuda", "--dtype", "bfloat16", "--model", "random:llama-3.1-8b")


def rows(subject: Subject) -> Iterator[Row]:
    """Yield whether its tokens are those of our engine, and where its speed is written; raise CheckFailed if they are
    not."""
    if find_spec("vllm") is None or subject.device == "cpu":
        yield Row("vllm", {"not_run": "vLLM or a CUDA device is missing"})
        return
    for name, arguments in {"exactness": EXACTNESS, "speed": SPEED}.items():
        log = subject.out / f"vllm-{name}.txt"
        with log.open("w") as text:
            done = subprocess.run([sys.executable, *arguments], stdout=text, stderr=text, check=False)
        yield Row(name, {"status": done.returncode, "output": log.name})
        if done.returncode:
            raise CheckFailed(f"{name} ended with {done.returncode}")
