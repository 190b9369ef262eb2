"""What one call touches: the files, classes and functions of this project, and how often each is called.

    python -m lab.bench.call_path [--tokens 4] [--idle-seconds 6] [--functions]

Gateway, scheduler and a worker with the fake engine run as three processes, each under `lab.bench.call_tracer`. After a
call by each protocol that warms them up, nothing happens for `--idle-seconds`; every function that runs then is
background, and does not count. Then one chat call with a short prompt arrives over gRPC, and one over HTTP. Clients are
not counted. Files, functions and calls are of functions as written; a class counts if one of its functions is called or
an instance is made. With `--functions` each function follows, by process.
"""

import argparse
import contextlib
import json
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.service_log import ServiceLog
from fairlead.sync_client import SyncClient
from lab.bench.call_tracer import INSTANCE, ROOT

MODEL = "fake"
PROMPT = "What is fair?"
WORKER_CORE = ("local_worker/core/", "local_worker/loop.py")
START_SECONDS = 60.0
SETTLE_SECONDS = 1.0  # after a call: what its end causes in all processes
POLL_SECONDS = 0.02
Calls = Mapping[str, Mapping[str, int]]  # by process and function


@dataclass(frozen=True, slots=True)
class Size:
    """What a call touches, in numbers."""

    files: int
    classes: int
    functions: int
    calls: int

    @classmethod
    def of(cls, functions: Mapping[str, int]) -> "Size":
        """Return the size of what these functions are, with the number of calls of each."""
        classes = {owner for name in functions if (owner := _owner(name))}
        written = {name: count for name, count in functions.items() if not name.endswith(INSTANCE)}
        files = {name.partition(" ")[0] for name in written}
        return cls(len(files), len(classes), len(written), sum(written.values()))


def _owner(function: str) -> str:
    """Return the file and class that a function belongs to; empty for a plain function."""
    path, name = function.split(" ")
    owner = name.partition(".<locals>")[0].rpartition(".")[0]
    return f"{path} {owner}" if owner else ""


class TracedStack:
    """The three processes; `take` returns what they called since the last time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._secret = secrets.token_hex(16)
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.gateway = self.http = ""

    def start(self) -> None:
        """Start all processes; return as soon as the gateway has the worker."""
        scheduler = self._start("global_scheduler")["port"]
        to_scheduler = ("--scheduler", f"127.0.0.1:{scheduler}")
        self._start("local_worker", *to_scheduler, "--model", MODEL, "--engine", "fake")
        ports = self._start("gateway", *to_scheduler, "--http-listen", "127.0.0.1:0")
        self.gateway, self.http = f"127.0.0.1:{ports['port']}", f"http://127.0.0.1:{ports['http_port']}/v1"
        self._logged("gateway", "ready")

    def stop(self) -> None:
        """End all processes, the last one first."""
        for process in reversed(self._processes.values()):
            with process:
                process.terminate()

    def take(self) -> Calls:
        """Return the calls of each function of each process since the last time."""
        return {name: _answer(process) for name, process in self._processes.items()}

    def _start(self, name: str, *arguments: str) -> Mapping[str, int]:
        command = [sys.executable, "-m", "lab.bench.call_tracer", name, "--listen", "127.0.0.1:0", *arguments]
        environment = {"PATH": "", "PYTHONPATH": f"{ROOT}:{ROOT / 'fairlead'}", "FAIRLEAD_SECRET": self._secret}
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        return self._logged(name, "listening")

    def _logged(self, name: str, message: str) -> Mapping[str, int]:
        log, end = ServiceLog(self._folder / f"{name}.log"), time.monotonic() + START_SECONDS
        while not (lines := log.lines(message)):
            if time.monotonic() > end or self._processes[name].poll() is not None:
                raise RuntimeError(f"{name} did not log {message!r}: {log.reason()}")
            time.sleep(POLL_SECONDS)
        return lines[0]


def _answer(process: subprocess.Popen[str]) -> Mapping[str, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    counts: dict[str, int] = json.loads(process.stdout.readline())
    return counts


@contextlib.contextmanager
def traced_stack() -> Iterator[TracedStack]:
    """Run the three processes."""
    with tempfile.TemporaryDirectory() as folder:
        stack = TracedStack(Path(folder))
        try:
            stack.start()
            yield stack
        finally:
            stack.stop()


def call_over_grpc(stack: TracedStack, tokens: int) -> None:
    """Make one chat call by the SDK."""
    with SyncClient(stack.gateway) as client:
        client.chat([{"role": "user", "content": PROMPT}], model=MODEL, max_tokens=tokens)


def call_over_http(stack: TracedStack, tokens: int) -> None:
    """Make one chat completion."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": tokens}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{stack.http}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        assert json.load(response)["usage"]["completion_tokens"] == tokens


PROTOCOLS: Mapping[str, Callable[[TracedStack, int], None]] = {"gRPC": call_over_grpc, "HTTP": call_over_http}


def measure(tokens: int, idle_seconds: float) -> Mapping[str, Calls]:
    """Return the calls by protocol, process and function, without those of functions that also run while idle."""
    with traced_stack() as stack:
        for call in PROTOCOLS.values():
            call(stack, tokens)
        time.sleep(SETTLE_SECONDS)
        stack.take()
        time.sleep(idle_seconds)
        idle, calls = stack.take(), dict[str, Calls]()
        for protocol, call in PROTOCOLS.items():
            call(stack, tokens)
            time.sleep(SETTLE_SECONDS)
            calls[protocol] = {name: _without(made, idle[name]) for name, made in stack.take().items()}
        return calls


def _without(made: Mapping[str, int], idle: Mapping[str, int]) -> Mapping[str, int]:
    return {function: count for function, count in made.items() if function not in idle}


def together(calls: Calls) -> Mapping[str, int]:
    """Return the calls of each function in all processes."""
    return sum((Counter(made) for made in calls.values()), Counter[str]())


def worker_core(calls: Calls) -> Mapping[str, int]:
    """Return the calls of the worker's loop and core."""
    return {function: count for function, count in calls["local_worker"].items() if function.startswith(WORKER_CORE)}


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.call_path")
    parser.add_argument("--tokens", type=int, default=4, help="output tokens of a call")
    parser.add_argument("--idle-seconds", type=float, default=6.0, help="time in which background is observed")
    parser.add_argument("--functions", action="store_true", help="list each function with its number of calls")
    args = parser.parse_args()
    print("| call | files | classes | functions | calls |\n|---|---|---|---|---|")
    measured = measure(args.tokens, args.idle_seconds)
    for protocol, calls in measured.items():
        rows = {"all": together(calls), **calls, "the worker's loop and core": worker_core(calls)}
        for name, functions in rows.items():
            size = Size.of(functions)
            print(f"| {protocol}: {name} | {size.files} | {size.classes} | {size.functions} | {size.calls} |")
    if args.functions:
        for protocol, calls in measured.items():
            for name, functions in calls.items():
                print(f"\n{protocol}: {name}")
                for function, count in sorted(functions.items()):
                    print(f"{count:5} {function}")


if __name__ == "__main__":
    main()
