"""The engines that workers of tests compute with: the fake one and, where it is installed, vLLM's executor."""

import os
from importlib.util import find_spec

import pytest

HAS_VLLM = find_spec("vllm") is not None
VLLM_MARKS = (
    pytest.mark.vllm,
    pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed: see `make test-vllm`"),
)
ENGINES = ("fake", pytest.param("vllm", marks=VLLM_MARKS))
VLLM_DEADLINE = 600.0  # seconds: it may take minutes to start where other processes compute
VLLM_BLOCK = 32  # its attention on a CPU needs a multiple of it
VLLM_RUNNER = "v2" if os.environ.get("TRITON_INTERPRET") == "1" else "v1"  # see tests/system/vllm/interpreted.py
VLLM_SETTINGS: dict[str, object] = {
    "engine": f"vllm:{VLLM_RUNNER}",
    "vllm_args": "{enforce_eager: true}",
    "dtype": "float32",
    "block_tokens": VLLM_BLOCK,
    "kv_tokens": f"{128 * VLLM_BLOCK},10%",
}
