"""The machine on which a figure was measured."""

import platform
import subprocess
import time
from pathlib import Path

BUFFER_BYTES = 1 << 28
CARRIED_COMMIT = Path("build/gpu-pack/commit")  # where `make gpu-pack` writes the commit for a machine without git


def describe(device: str) -> str:
    """Return the machine, the versions and the commit in one line."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else processor()
    return f"{name}; Python {platform.python_version()}, torch {torch.__version__}; commit {commit()}"


def commit() -> str:
    """Return the short hash of the checked-out commit; without git, the one that was carried along, or `unknown`."""
    try:
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return CARRIED_COMMIT.read_text().strip() if CARRIED_COMMIT.exists() else "unknown"
    return done.stdout.strip()


def processor() -> str:
    """Return the processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory_bandwidth(device: str, threads: int) -> float:
    """Return the bytes per second at which a sum reads a large buffer, as the best of ten."""
    import torch

    torch.set_num_threads(threads)
    buffer = torch.ones(BUFFER_BYTES // 4, device=device)
    best = 0.0
    for _ in range(10):
        began = time.perf_counter()
        float(buffer.sum())
        best = max(best, BUFFER_BYTES / (time.perf_counter() - began))
    return best
