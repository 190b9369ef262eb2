"""FlashInfer's attention kernels, compiled ahead with nvcc from wheels, so that a device machine compiles nothing.

    python -m lab.bench.gpu.kernels FOLDER

It installs FlashInfer and nvcc into the folder, and compiles there in a process that finds them on its path. A kernel
takes about 200 seconds of processor time.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ARCHITECTURE = "9.0a"  # H100 and H200
CUDA = Path("nvidia", "cu13")  # where the wheels put CUDA
TOOLCHAIN = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-runtime==13.0.96",
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A variant of FlashInfer's prefill kernels, which compute decode steps too: its head size, and whether it has a
    window."""

    head: int
    window: bool = False


# Those of tests/system/gpu, of the 8B shape, and of Gemma-2B's heads.
KERNELS = (Kernel(64), Kernel(64, window=True), Kernel(128), Kernel(256))


def install(tools: Path) -> None:
    """Install FlashInfer and nvcc into the folder `tools`, and what the linker looks for and the wheels lack."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tools)]
    subprocess.run([*pip, "--requirement=constraints/gpu.txt", *TOOLCHAIN], check=True)
    libraries = tools / CUDA / "lib64"
    libraries.mkdir()
    (libraries / "libcudart.so").symlink_to("../lib/libcudart.so.13")
    driver = ["cc", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libcuda.so.1", "-o", str(libraries / "libcuda.so")]
    subprocess.run(driver, check=True)


def environment(tools: Path, scratch: Path) -> dict[str, str]:
    """Return the variables of a process in which FlashInfer compiles for ARCHITECTURE, below `scratch`."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tools), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(tools / "bin"), os.environ["PATH"]]),
        "CUDA_HOME": str(tools / CUDA),
        "FLASHINFER_CUDA_ARCH_LIST": ARCHITECTURE,
        "FLASHINFER_WORKSPACE_BASE": str(scratch),
        "MAX_JOBS": os.environ.get("MAX_JOBS", str(os.cpu_count())),
    }


def compile_kernels(into: Path) -> None:
    """Compile all kernels and copy them to `into`, each as NAME/NAME.so; FlashInfer has to be importable."""
    import torch
    from flashinfer.jit.attention import gen_batch_prefill_module
    from flashinfer.jit.core import build_jit_specs

    dtype = torch.bfloat16
    specs = [
        gen_batch_prefill_module(
            "fa2", dtype, dtype, dtype, torch.int32, kernel.head, kernel.head, 0, kernel.window, False, False
        )
        for kernel in KERNELS
    ]
    build_jit_specs(specs)
    shutil.rmtree(into, ignore_errors=True)
    for spec in specs:
        (into / spec.name).mkdir(parents=True)
        shutil.copy(spec.jit_library_path, into / spec.name)


def main(folder: Path) -> None:
    """Install the tools into `folder`, and compile the kernels into `folder`/kernels in another process."""
    tools = folder.resolve() / "tools"
    shutil.rmtree(tools, ignore_errors=True)
    install(tools)
    program = (
        "import sys, pathlib; from lab.bench.gpu import kernels; kernels.compile_kernels(pathlib.Path(sys.argv[1]))"
    )
    compiling = [sys.executable, "-c", program, str(folder / "kernels")]
    subprocess.run(compiling, check=True, env=environment(tools, folder.resolve()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
