"""The process that runs checks, one after the other, and writes what it finds to its standard output as lines of JSON.

It ends at the first check that fails, since an error of CUDA spoils the process that it happens in.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.gpu.decode import decode
from bench.gpu.device import device
from bench.gpu.device_tests import device_tests
from bench.gpu.long_prompt import long_prompt
from bench.gpu.mixed import mixed
from bench.gpu.policies import policies
from bench.gpu.prefill import prefills
from bench.gpu.row import Row
from bench.gpu.run_ahead import run_ahead
from bench.gpu.scale import FULL, TINY
from bench.gpu.subject import Subject

RUN: Mapping[str, Callable[[Subject], Iterator[Row]]] = {
    "device": device,
    "tests": device_tests,
    "decode": decode,
    "prefill": prefills,
    "mixed": mixed,
    "run-ahead": run_ahead,
    "policies": policies,
    "long prompt": long_prompt,
}


def main(scale: str, out: str, *names: str) -> int:
    """Run the checks of these names; return 1 if one failed."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print belongs to the log
    subject = Subject(TINY if scale == "tiny" else FULL, Path(out))
    for name in names:
        failure = ""
        try:
            for row in RUN[name](subject):
                lines.write(json.dumps({"case": row.case, "figures": dict(row.figures)}) + "\n")
        except Exception as error:
            traceback.print_exc()
            failure = f"{type(error).__name__}: {error}"[:300]
        lines.write(json.dumps({"ended": name, "failure": failure}) + "\n")
        if failure:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
