"""Run one service and count the calls of its own functions: the launcher that `lab.bench.call_path` starts.

    python -m lab.bench.call_tracer MODULE [ARGUMENTS OF THE SERVICE]

For each line on standard input it writes one line to standard output: a JSON object with the number of calls of each
function since the line before. A function's key is its file and its qualified name; what dataclasses and named tuples
generate has the name INSTANCE in its class. As for Python's profilers a resumed coroutine or generator is one more
call, and a comprehension is a function.
"""

import json
import runpy
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("fairlead/", "serving/", "throttler/", "gateway/", "global_scheduler/", "local_worker/")
GENERATED = "<string>"  # the file of generated methods
INSTANCE = "<instance>"


class CallTracer:
    """Counts the calls of all threads that start after `install`."""

    def __init__(self) -> None:
        self._calls: Counter[CodeType] = Counter()
        self._keys: dict[CodeType, str] = {}  # empty for functions of other projects

    def install(self) -> None:
        """Count from now on, in this thread and in those that it starts."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def take(self) -> dict[str, int]:
        """Return the calls of each function since the last time."""
        calls, self._calls = self._calls, Counter()
        counts: Counter[str] = Counter()
        for code, count in list(calls.items()):
            counts[self._keys[code]] += count
        return dict(counts)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self._keys:
            self._keys[code] = _key(frame)
        if self._keys[code]:
            self._calls[code] += 1


def _key(frame: FrameType) -> str:
    code = frame.f_code
    if code.co_filename == GENERATED:
        return _key_of_generated(frame)
    if not code.co_filename.startswith(f"{ROOT}/"):
        return ""
    path = code.co_filename.removeprefix(f"{ROOT}/")
    return f"{path} {code.co_qualname}" if path.startswith(PACKAGES) and "_pb2" not in path else ""


def _key_of_generated(frame: FrameType) -> str:
    code = frame.f_code
    if not code.co_argcount:
        return ""
    first = frame.f_locals[code.co_varnames[0]]
    made = first if isinstance(first, type) else type(first)
    path = made.__module__.replace(".", "/") + ".py"
    return f"{path} {made.__qualname__}.{INSTANCE}" if path.startswith(PACKAGES) else ""


def answer(tracer: CallTracer) -> None:
    """Write what `tracer` has counted, for each line of standard input."""
    for _ in sys.stdin:
        print(json.dumps(tracer.take()), flush=True)


def main() -> None:
    """Run the service whose name and arguments the command line holds."""
    module, *arguments = sys.argv[1:]
    tracer = CallTracer()
    threading.Thread(target=answer, args=(tracer,), daemon=True).start()
    tracer.install()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
