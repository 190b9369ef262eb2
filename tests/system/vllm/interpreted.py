"""vLLM's model runner V2 on a CPU, in processes with TRITON_INTERPRET=1: Triton's interpreter runs its kernels.

vLLM computes with V2 on a CPU if Triton has a backend for CPUs, which that of the index has not. The interpreter needs
none, so an empty one is shown to vLLM.
"""

import importlib
import os
from types import SimpleNamespace
from typing import Any


def lend_backend() -> None:
    """Let vLLM, which must not have been imported, find a backend: a build for CPUs looks for its name, others for one
    that is active."""
    triton: Any = importlib.import_module("triton.backends")
    driver = SimpleNamespace(is_active=lambda: True)
    triton.backends["cpu"] = triton.backends["interpreter"] = SimpleNamespace(driver=driver)
    os.environ["VLLM_CPU_CI_ENV"] = (
        "1"  # no step before the first: its logits are NaN, from which nothing can be sampled
    )
