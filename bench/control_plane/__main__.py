"""The control plane's cost per call: CPU time, requests per second, time added to the first token.

    python -m bench.control_plane [--calls 400] [--callers 32] [--workers 4] [--routers]

Every call sends a prompt of 8 KB and receives a stream of 64 tokens. Fake workers answer at once (burst) or at 10 ms
per token. Fairlead runs over gRPC and over HTTP, with four tokens per message and with one. It is compared with one
stream per call straight to the workers and, with --routers, with public HTTP routers over HTTP workers, installed into
`.cache/routers`. CPU counts the processes in between: gateway and scheduler, or the router. The CPU time per token is
the gateway's: what a call of 64 tokens costs more than a call of one token, divided by 63. The added time is the time
to the first token less that of the direct path. Two more tables show the time of a dispatch request at 500 decisions a
second, and the start-up times of gateway and scheduler.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.control_plane.dispatching import Rate, latencies
from bench.control_plane.job import TOKENS, Job, Measured
from bench.control_plane.over_http import COALESCED, EACH_TOKEN, over_http
from bench.control_plane.routers import environment
from bench.control_plane.stack import start, straight_to_a_worker, through_the_gateway
from bench.control_plane.starting import median, starts
from bench.machine import commit, processor
from cli.stack import Stack
from fairlead.v1 import inference_pb2

STARTS = 5
READY = {
    "global_scheduler": "listening",
    "gateway": "ready",
}  # the log message when ready; the gateway then has a worker
FRONTS: Mapping[str, Callable[[Stack, Job], Coroutine[Any, Any, Measured]]] = {
    "gRPC, coalesced": partial(through_the_gateway, streaming=inference_pb2.STREAMING_COALESCED),
    "gRPC, each token": partial(through_the_gateway, streaming=inference_pb2.STREAMING_EACH_TOKEN),
    "HTTP, coalesced": partial(over_http, headers=COALESCED),
    "HTTP, each token": partial(over_http, headers=EACH_TOKEN),
}
RATE = Rate(per_second=500, seconds=10.0, prompt_tokens=2048)


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m bench.control_plane")
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--routers", action="store_true", help="also measure public routers")
    args = parser.parse_args()
    print(f"{processor()}; commit {commit()}; {args.calls} calls, {args.callers} callers, {args.workers} workers")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    columns = "calls/s | CPU ms per call | of it gateway | gateway CPU µs per token"
    print(f"| pace | system | {columns} | first token p50 ms | p99 ms | added p50 ms | added p99 ms |")
    print("|---" * 10 + "|")
    for step_seconds in (0.0, 0.01):
        job = Job(args.calls, args.callers, step_seconds)
        _fairlead(job, args.workers)
        if args.routers:
            _routers(job, args.workers)
    with start(args.workers, 0.0) as stack:
        took = asyncio.run(latencies(stack, RATE))
    p50, p99 = (took[int(len(took) * part)] * 1e3 for part in (0.5, 0.99))
    print(f"\na decision at {RATE.per_second}/s, {RATE.prompt_tokens} tokens: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    _starts(args.workers)


def _starts(workers: int) -> None:
    print(f"\n| start to ready, median of {STARTS} | wall s | CPU s |\n|---|---|---|")
    with start(workers, 0.0) as stack, tempfile.TemporaryDirectory() as logs:
        for module, ready in READY.items():
            took = median(starts(stack, Path(logs), module, ready, STARTS))
            print(f"| {module} | {took.wall:.2f} | {took.cpu:.2f} |", flush=True)


def _fairlead(job: Job, workers: int) -> None:
    with start(workers, job.step_seconds) as stack:
        direct = asyncio.run(straight_to_a_worker(stack, job))
        _print(job, "gRPC, straight to the workers", direct, direct)
        for name, front in FRONTS.items():
            single = asyncio.run(front(stack, replace(job, tokens=1)))
            measured = asyncio.run(front(stack, job))
            of_gateway = f"{measured.cpu_ms('gateway'):.2f}", f"{_us_per_token(measured, single):.0f}"
            _print(job, f"Fairlead, {name}", measured, direct, "gateway", "scheduler", of_gateway=of_gateway)


def _us_per_token(measured: Measured, single: Measured) -> float:
    """Return the gateway's CPU microseconds for each token beyond the first."""
    return (measured.cpu_ms("gateway") - single.cpu_ms("gateway")) / (TOKENS - 1) * 1e3


def _routers(job: Job, workers: int) -> None:
    python = environment.install()
    direct = environment.direct(python, job, workers)
    _print(job, "HTTP, straight to one worker", direct, direct)
    for name in environment.ROUTERS:
        measured = environment.run(python, name, job, workers)
        _print(job, name, measured, direct, *measured.cpu)


def _print(
    job: Job,
    name: str,
    measured: Measured,
    direct: Measured,
    *between: str,
    of_gateway: tuple[str, str] = ("-", "-"),
) -> None:
    cells = [
        str(job),
        name,
        f"{measured.rate:.0f}",
        f"{measured.cpu_ms(*between):.2f}" if between else "-",
        *of_gateway,
        f"{measured.median_ms:.1f}",
        f"{measured.first_ms(0.99):.1f}",
        "-" if measured is direct else f"{measured.median_ms - direct.median_ms:.1f}",
        "-" if measured is direct else f"{measured.first_ms(0.99) - direct.first_ms(0.99):.1f}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
