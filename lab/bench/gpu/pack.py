"""The folder that travels to a machine without a package registry: wheels, kernels compiled ahead, the commit's name.

    python -m lab.bench.gpu.pack [--worker]

`make gpu-pack` makes it, for Python 3.12 on x86-64 beside torch 2.11 and transformers 5.17; with `--worker` it holds
all that a whole worker, gateway and scheduler need there.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab.bench.machine import CARRIED_COMMIT, commit

FOLDER = Path("build/gpu-pack")
KERNELS = Path("build/gpu-kernels/kernels")
GPU = Path("constraints/gpu.txt")
PYTHON = "3.12"
GLIBC = range(17, 35)  # minor versions: pip takes wheels of exactly the platforms that are named
LIMIT_BYTES = 45 << 20  # of the tree and the folder together
# What the services import and the machine's image lacks, or may have too old.
WORKER = (
    "googleapis-common-protos",
    "grpcio",
    "grpcio-health-checking",
    "grpcio-reflection",
    "grpcio-status",
    "httptools",
    "llguidance",
    "msgspec",
    "opentelemetry-api",
    "opentelemetry-exporter-otlp-common",
    "opentelemetry-exporter-otlp-proto-common",
    "opentelemetry-exporter-otlp-proto-grpc",
    "opentelemetry-proto",
    "opentelemetry-sdk",
    "opentelemetry-semantic-conventions",
    "protobuf",
    "redis",
    "uvicorn",
)


def install(pack: Path, into: Path) -> None:
    """Install the pack's wheels into the folder `into`, and its kernels where FlashInfer looks for them.

    Raises CalledProcessError if pip refuses them.
    """
    shutil.rmtree(into, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--target", into, *sorted((pack / "wheels").glob("*.whl"))], check=True)
    shutil.copytree(pack / "kernels", into / "flashinfer" / "data" / "aot", dirs_exist_ok=True)


def download(wheels: Path, worker: bool) -> None:
    """Download the wheels of constraints/gpu.txt for the machine, and those of a whole worker if asked for."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in GLIBC]
    platforms += ["--platform=manylinux2014_x86_64", "--platform=manylinux1_x86_64"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", f"--dest={wheels}"]
    machine = [f"--python-version={PYTHON}", "--implementation=cp", *platforms]
    named = ["--constraint=constraints/worker.txt", *WORKER] if worker else []
    subprocess.run([*pip, *machine, f"--requirement={GPU}", *named], check=True)


def main() -> int:
    """Make the folder; return 1 if it is too large beside the tree."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.gpu.pack", description=__doc__)
    parser.add_argument("--worker", action="store_true", help="with all that worker, gateway and scheduler need")
    args = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    download(FOLDER / "wheels", args.worker)
    shutil.copytree(KERNELS, FOLDER / "kernels")
    CARRIED_COMMIT.write_text(commit() + "\n")
    tracked = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split("\0")
    tree, pack = (sum(map(os.path.getsize, filter(os.path.exists, paths))) for paths in (tracked, FOLDER.rglob("*")))
    print(f"{FOLDER}: {pack / 1e6:.1f} MB, beside a tree of {tree / 1e6:.1f} MB")
    if pack + tree > LIMIT_BYTES:
        print(f"together they have more than {LIMIT_BYTES / 1e6:.0f} MB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
