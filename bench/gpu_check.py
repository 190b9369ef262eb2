"""Everything that a CUDA device has to show, in one command: `make gpu-check`, or in an environment with vLLM
`python -m bench.gpu_check`.

It runs the tests on the device, compares both engines' tokens, and measures speed and fairness with the shape of
Llama-3.1-8B and random weights. `report.md` in the folder `--out` has the device, the versions and every result. It
exits with 1 if a part failed, and at once if there is no device.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from bench.machine import commit, processor

MODEL = ("--device", "cuda", "--dtype", "bfloat16", "--model", "random:llama-3.1-8b")
PACKAGES = ("torch", "transformers", "flashinfer-python", "vllm")
TESTED = ("-m", "pytest", "-q", "--show-capture", "no")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the check: the arguments of Python, and the modules that have to be installed for it."""

    title: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()


PARTS = (
    Part("Our engine on the device: FlashInfer, graphs, running ahead", (*TESTED, "tests/gpu"), ("flashinfer",)),
    Part("Our engine's tokens are those of transformers", (*TESTED, "tests/local_worker/engine/test_exactness.py")),
    Part("The tokens of vLLM's executor are those of our engine", (*TESTED, "tests/vllm/test_exactness.py"), ("vllm",)),
    Part("Speed of our engine", ("-m", "bench.engine", *MODEL)),
    Part("Speed of both engines and of vLLM alone", ("-m", "bench.vllm_engine", *MODEL), ("vllm",)),
    Part("DLPM, VTC and LPM in the device's time", ("-m", "bench.device_policies", *MODEL)),
)


class Status(Enum):
    """The three possible results of a part of the check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a part, and what it printed, or why it was not run."""

    part: Part
    status: Status
    seconds: float
    text: str


def run(part: Part, log: Path) -> Outcome:
    """Run a part and write all that it prints to `log`."""
    if missing := [module for module in part.needs if find_spec(module) is None]:
        return Outcome(part, Status.NOT_RUN, 0.0, f"{', '.join(missing)} is not installed")
    began = time.monotonic()
    with log.open("w") as errors:
        done = subprocess.run([sys.executable, *part.arguments], stdout=subprocess.PIPE, stderr=errors, text=True)
    seconds = time.monotonic() - began
    if done.returncode == 0:
        return Outcome(part, Status.PASSED, seconds, done.stdout)
    return Outcome(part, Status.FAILED, seconds, f"{done.stdout}\nstatus {done.returncode}; standard error is in {log}")


def report(machine: Sequence[str], outcomes: Sequence[Outcome]) -> str:
    """Return the report as Markdown: the machine, a summary, and what each part printed."""
    summary = [f"| {each.part.title} | {each.status.value} | {each.seconds:.0f} |" for each in outcomes]
    parts = [
        f"## {each.part.title}\n\n`python {' '.join(each.part.arguments)}`: {each.status.value}\n\n{_quoted(each.text)}"
        for each in outcomes
    ]
    heads = ["| part | result | seconds |", "|---|---|---|"]
    lines = ["# Check on a CUDA device", "", *(f"- {line}" for line in machine), "", *heads, *summary]
    return "\n".join(lines) + "\n\n" + "\n\n".join(parts) + "\n"


def _quoted(text: str) -> str:
    """Return tables as they are, and other lines as code."""
    blocks: list[str] = []
    was_table = None
    for line in text.strip().splitlines():
        is_table = line.startswith("|")
        if is_table is not was_table:
            blocks.append("" if was_table is None else "\n" if was_table else "```\n\n")
            blocks.append("" if is_table else "```\n")
        blocks.append(f"{line}\n")
        was_table = is_table
    return "".join([*blocks, "```" if was_table is False else ""]).rstrip("\n")


def describe_device() -> list[str]:
    """Return the device, its driver, and the versions of what computes on it."""
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    devices = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip().splitlines()
    versions = ", ".join(f"{package} {_version(package)}" for package in PACKAGES)
    return [
        *(f"device (name, driver, memory): {device}" for device in devices),
        f"CUDA of torch: {torch.version.cuda}",
        f"{versions}, Python {sys.version.split()[0]}",
        f"host: {processor()}; commit {commit()}",
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def main() -> int:
    """Run every part, write the report, and return 1 if there is no device or a part failed."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m bench.gpu_check", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("build/gpu-check"), help="folder for the report (default: %(default)s)"
    )
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"gpu-check: torch {torch.__version__} finds no CUDA device; nothing was run", file=sys.stderr)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    machine, outcomes = describe_device(), list[Outcome]()
    for number, part in enumerate(PARTS, 1):
        print(f"{part.title} ...", flush=True)
        outcomes.append(run(part, args.out / f"{number}.log"))
        print(f"  {outcomes[-1].status.value}", flush=True)
        (args.out / "report.md").write_text(report(machine, outcomes))
    print(f"report: {args.out / 'report.md'}")
    return int(any(each.status is Status.FAILED for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
