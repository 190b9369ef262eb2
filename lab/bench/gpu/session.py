"""Runs checks in a process, which is killed when one of them exceeds its limit; the others follow in a new process.

A call of CUDA that never returns can't be interrupted from within its process. Every row is written and printed as
soon as it is known.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from lab.bench.gpu.checks import Check
from lab.bench.gpu.row import Row

CHILD = (sys.executable, "-m", "lab.bench.gpu.child")
SECONDS_TO_END = 12.0  # services of a stack that a check started get 10
SECONDS_TO_DIE = 10.0


class Status(Enum):
    """The possible results of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(slots=True)
class Outcome:
    """The result of a check, the reason if it failed, and its rows, also those before a failure."""

    check: str
    status: Status = Status.NOT_RUN
    seconds: float = 0.0
    failure: str = ""
    rows: list[Row] = field(default_factory=list)


class Session:
    """Checks at a scale (`full` or `tiny`), with `seconds` for all of them; files go to the folder `out`."""

    def __init__(self, scale: str, out: Path, seconds: float, command: Sequence[str] = CHILD) -> None:
        self._scale = scale
        self._out = out
        self._ends = time.monotonic() + seconds
        self._command = command

    def run(self, checks: Sequence[Check]) -> list[Outcome]:
        """Run the checks in their order; those for which no time is left are not run."""
        for earlier in ("results.jsonl", "log.txt"):
            (self._out / earlier).unlink(missing_ok=True)
        outcomes: list[Outcome] = []
        while (rest := checks[len(outcomes) :]) and time.monotonic() < self._ends:
            outcomes += self._in_one_process(rest)
        return outcomes + [Outcome(check.name, failure="no time was left") for check in rest]

    def _in_one_process(self, checks: Sequence[Check]) -> Iterator[Outcome]:
        """Yield the outcome of each check up to the first that fails."""
        with (self._out / "log.txt").open("a") as log:
            child = subprocess.Popen(
                [*self._command, self._scale, str(self._out), *(check.name for check in checks)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_forward, args=(child, lines), daemon=True).start()
        try:
            for check in checks:
                outcome = self._follow(check, lines)
                self._note({"check": check.name, "status": outcome.status.value, "failure": outcome.failure})
                yield outcome
                if outcome.status is Status.FAILED:
                    return
        finally:
            _end(child)

    def _follow(self, check: Check, lines: "queue.SimpleQueue[str]") -> Outcome:
        """Collect the rows of the check that the process runs now."""
        began = time.monotonic()
        ends = min(began + check.seconds, self._ends)
        outcome = Outcome(check.name, Status.FAILED)
        while True:
            try:
                line = lines.get(timeout=max(ends - time.monotonic(), 0.0))
            except queue.Empty:
                outcome.failure = f"stopped after {time.monotonic() - began:.0f} s"
                break
            if not line:
                outcome.failure = "its process ended; log.txt has its last words"
                break
            found = json.loads(line)
            if "ended" in found:
                outcome.failure = found["failure"]
                outcome.status = Status.FAILED if outcome.failure else Status.PASSED
                break
            outcome.rows.append(Row(found["case"], found["figures"]))
            self._note({"check": check.name, **found})
        outcome.seconds = time.monotonic() - began
        return outcome

    def _note(self, found: dict[str, Any]) -> None:
        with (self._out / "results.jsonl").open("a") as results:
            results.write(json.dumps(found) + "\n")
        print(found["check"], Row(found["case"], found["figures"]) if "case" in found else found["status"], flush=True)


def _forward(child: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str]") -> None:
    """Pass on the lines that the process writes, and an empty one after the last."""
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            lines.put(line)
    lines.put("")


def _end(child: "subprocess.Popen[str]") -> None:
    """End the process and those that it started, by force if it does not end in time; one inside the driver may not
    even die."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(SECONDS_TO_END)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(SECONDS_TO_DIE)
    except subprocess.TimeoutExpired:
        print(f"process {child.pid} does not die", file=sys.stderr)
