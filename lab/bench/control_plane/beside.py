"""Another checkout of this project, whose control plane is measured beside this one's in the same rounds.

As a program, `beside.py WORKERS STEP_SECONDS CALLERS PROMPT_BYTES TOKEN_BYTES`, it starts the stack of the checkout in
which it runs, prints the gateway's addresses and the ids of all processes as JSON, and ends with its standard input.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.bench.control_plane.stack import Gateway, plain, start


@contextmanager
def other_checkout(
    folder: Path, workers: int, step_seconds: float, callers: int, prompt_bytes: int, token_bytes: int
) -> Iterator[Gateway]:
    """Run the stack of the checkout in `folder`, with the packages of this environment; yield its gateway."""
    sizes = map(str, (workers, step_seconds, callers, prompt_bytes, token_bytes))
    command = [sys.executable, "-P", str(Path(__file__).resolve()), *sizes]
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve())}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        grpc, http, processes = json.loads(process.stdout.readline())
        yield Gateway(grpc, http, processes)
    finally:
        process.stdin.close()
        process.wait()


def _serve(workers: str, step_seconds: str, callers: str, prompt_bytes: str, token_bytes: str) -> None:
    with start(int(workers), float(step_seconds), int(callers), int(prompt_bytes), int(token_bytes)) as stack:
        gateway = plain(stack)
        print(json.dumps([gateway.grpc, gateway.http, gateway.processes]), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
