"""The process that runs checks, one after the other, and writes what it finds to its standard output as lines of JSON.

It ends at the first check that fails, since an error of CUDA spoils the process that it happens in.
"""

import json
import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

from lab.bench.gpu.scale import FULL, TINY
from lab.bench.gpu.subject import Subject


def main(scale: str, out: str, *names: str) -> int:
    """Run the checks of these names; return 1 if one failed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # services that a check has started end with it
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print belongs to the log
    subject = Subject(TINY if scale == "tiny" else FULL, Path(out))
    for name in names:
        failure = ""
        try:
            # Imported here: a check may need a package that the others do without.
            for row in import_module(f"lab.bench.gpu.checks.{name}").rows(subject):
                lines.write(json.dumps({"case": row.case, "figures": dict(row.figures)}) + "\n")
        except Exception as error:
            traceback.print_exc()
            failure = f"{type(error).__name__}: {error}"[:300]
        if failure or name == names[-1]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends by itself now
        lines.write(json.dumps({"ended": name, "failure": failure}) + "\n")
        if failure:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
