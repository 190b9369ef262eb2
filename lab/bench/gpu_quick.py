"""What five minutes on a GPU show of the engine: eight checks on a machine that may have no package registry.

    python -m lab.bench.gpu_quick OUT
    python -m lab.bench.gpu_quick OUT --tiny

A machine without FlashInfer gets it from the folder that `make gpu-pack` made. Each check has a limit of its own, and
one that fails or hangs does not stop the others. The folder OUT gets `results.jsonl` (every row as soon as it is
known), `report.md`, `tests.txt` and `log.txt`; a short table is printed last. lab/bench/GPU.md has what was predicted
and measured. With `--tiny` a tiny model on any machine tries the checks themselves.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from lab.bench.gpu.checks import QUICK, Check
from lab.bench.gpu.pack import FOLDER, install
from lab.bench.gpu.predictions import PREDICTIONS
from lab.bench.gpu.report import report, summary
from lab.bench.gpu.session import Session, Status

SITE = Path("build/gpu-site")


def main(module: str, description: str | None, checks: Sequence[Check], seconds: float) -> int:
    """Run the checks as the command line of `module` says, with so many seconds for all; print the table.

    Return 1 if there is no device or a check did not pass.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder for results, made if it does not exist")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, also on a CPU")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="for all, installation included (default: %(default)s)"
    )
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of checks, separated by commas")
    parser.add_argument("--pack", type=Path, default=FOLDER, help="folder of `make gpu-pack` (default: %(default)s)")
    args, began = parser.parse_args(), time.monotonic()
    if not args.tiny and not _has_device():
        return 1
    if find_spec("flashinfer") is None and args.pack.exists():
        _add(args.pack)
    args.out.mkdir(parents=True, exist_ok=True)
    chosen = [check for check in checks if args.only is None or check.name in args.only]
    left = args.seconds - (time.monotonic() - began)
    outcomes = Session("tiny" if args.tiny else "full", args.out.resolve(), left).run(chosen)
    names = {check.name for check in chosen if not args.tiny}  # predictions are about the full scale
    predictions = [prediction for prediction in PREDICTIONS if prediction.check in names]
    (args.out / "report.md").write_text(report(outcomes, predictions))
    print(summary(outcomes, predictions))
    return int(any(outcome.status is not Status.PASSED for outcome in outcomes))


def _has_device() -> bool:
    import torch

    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} finds no CUDA device; nothing was run", file=sys.stderr)
    return torch.cuda.is_available()


def _add(pack: Path) -> None:
    """Install the pack for this process and those that it starts; without it the engine computes with torch alone."""
    try:
        install(pack, SITE)
    except subprocess.CalledProcessError as error:
        print(f"{pack} could not be installed: pip ended with {error.returncode}", file=sys.stderr)
        return
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE.resolve()), os.environ.get("PYTHONPATH", "")])


if __name__ == "__main__":
    sys.exit(main("lab.bench.gpu_quick", __doc__, QUICK, 300.0))
