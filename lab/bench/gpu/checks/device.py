"""The device, the versions of what computes on it, and its ceilings."""

import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from shutil import which

import torch

from lab.bench.gpu.row import Figure, Row
from lab.bench.gpu.subject import Subject
from lab.bench.machine import commit, processor

PACKAGES = ("torch", "transformers", "flashinfer-python", "apache-tvm-ffi", "vllm")


def rows(subject: Subject) -> Iterator[Row]:
    """Yield what the device and its software are, then how fast it copies and multiplies."""
    yield Row("machine", _machine(subject.device))
    yield Row("flashinfer", _flashinfer())
    ceilings = subject.ceilings
    yield Row("copy", {"tb_per_s": ceilings.bytes_per_second / 1e12})
    yield Row("matmul", {"tflop_per_s": ceilings.operations_per_second / 1e12})


def _machine(name: str) -> dict[str, Figure]:
    versions = {package: found for package in PACKAGES if (found := _version(package))}
    described: dict[str, Figure] = {
        "device": processor(),
        "commit": commit(),
        "python": platform.python_version(),
        **versions,
    }
    if name == "cuda":
        described |= {
            "device": torch.cuda.get_device_name(),
            "memory_gb": torch.cuda.get_device_properties(0).total_memory / 1e9,
            "cuda": str(torch.version.cuda),
            "host": processor(),
        }
    if which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        described["driver"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return described


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _flashinfer() -> dict[str, Figure]:
    """Return whether FlashInfer can be imported, and how many kernels it finds compiled ahead."""
    try:
        from flashinfer.jit.env import FLASHINFER_AOT_DIR
    except ImportError as error:
        return {"imported": False, "why": str(error)[:200]}
    return {"imported": True, "kernels": sum(1 for _ in FLASHINFER_AOT_DIR.glob("*/*.so"))}
