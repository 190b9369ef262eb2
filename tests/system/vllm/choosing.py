"""Print as JSON which model runner vLLM chooses for a folder's model where the machine has a GPU and Triton.

The device is faked where vLLM asks for it: NVML has one H100, and Triton has a driver for it. The compiled parts of
vLLM, which choose nothing, are empty. All decisions are vLLM's own.
"""

import importlib
import importlib.metadata
import json
import os
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from local_worker.engine.vllm.environment import RUNNER, prepare

COMPILED = ("_C", "_C_stable_libtorch", "_moe_C_stable_libtorch", "vllm_flash_attn._vllm_fa2_C")
# Compiled functions that vLLM calls while it is imported.
CALLED = ("cutlass_scaled_mm_supports_fp8", "cutlass_scaled_mm_supports_block_fp8", "cutlass_group_gemm_supported")
MEMORY = 80 << 30


def fake_device() -> torch.library.Library:
    """Let vLLM, which must not have been imported, find a GPU while the result exists."""
    packages: Any = importlib.metadata
    version = packages.version
    packages.version = lambda name: "0" if name == "vllm" else version(name)  # not that of a build for CPUs
    nvml = load_nvml()
    nvml.nvmlInit = nvml.nvmlShutdown = lambda: None
    nvml.nvmlDeviceGetCount = lambda: 1
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetCudaComputeCapability = lambda _: (9, 0)
    nvml.nvmlDeviceGetName = lambda _: "NVIDIA H100 80GB HBM3"
    nvml.nvmlDeviceGetMemoryInfo = lambda _: SimpleNamespace(total=MEMORY, free=MEMORY, used=0)
    triton: Any = importlib.import_module("triton.backends")
    triton.backends["nvidia"].driver.is_active = staticmethod(lambda: True)
    for name in COMPILED:
        sys.modules[f"vllm.{name}"] = ModuleType(f"vllm.{name}")
    library = torch.library.Library("_C", "FRAGMENT")
    for name in CALLED:
        library.define(f"{name}(int capability) -> bool")
        library.impl(name, lambda _: False, "CompositeExplicitAutograd")
    return library


def load_nvml() -> Any:
    """Return vLLM's module for NVML, which has to be there before vLLM looks for devices: while it is imported."""
    vllm = find_spec("vllm")
    assert vllm is not None
    assert vllm.origin is not None
    package: Any = ModuleType("vllm.third_party")
    package.__path__ = [str(Path(vllm.origin).parent / "third_party")]
    sys.modules["vllm.third_party"] = package
    spec = spec_from_file_location("vllm.third_party.pynvml", f"{package.__path__[0]}/pynvml.py")
    assert spec is not None
    assert spec.loader is not None
    package.pynvml = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(package.pynvml)
    return package.pynvml


def choice(model: str, runner: str = "v1", **arguments: Any) -> str:
    """Return the model runner that vLLM chooses, or why the worker, which wants `runner`, refuses the model."""
    from local_worker.engine.attention import UnsupportedModel
    from local_worker.engine.vllm.arguments import VllmOptions, engine_config

    try:
        config = engine_config(model, VllmOptions(max_running=4, token_budget=256, runner=runner), arguments)
    except UnsupportedModel as error:
        return str(error)
    return "v2" if config.use_v2_model_runner else "v1"


def main() -> None:
    """Print the choices with the worker's environments, and without the variable that chooses."""
    _library = fake_device()
    prepare()
    import vllm
    from vllm.platforms import current_platform

    architectures: Any = importlib.import_module("vllm.model_executor.models.registry")
    architectures._run_in_subprocess = lambda function: function()
    model = sys.argv[1]
    found = {"version": vllm.__version__, "device": current_platform.device_type, "v1": choice(model)}
    found["watermark"] = choice(model, watermark_config={"key": 5})  # only V2 has it, so it is chosen in any case
    prepare("v2")
    found["v2"] = choice(model, "v2")
    del os.environ[RUNNER]
    print(json.dumps({**found, "free": choice(model)}))


if __name__ == "__main__":
    main()
