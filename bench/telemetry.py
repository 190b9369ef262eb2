"""`python -m bench.telemetry`: what observing costs a gateway, in CPU per streamed call.

Real processes: scheduler, worker with the fake engine, gateway, and a collector that takes spans and throws them away.
Forms are measured in turns within one run; CPU is the gateway's own, user and system, from /proc.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc

from bench.machine import commit, processor
from cli.stack import Stack
from fairlead import Client

TICKS = os.sysconf("SC_CLK_TCK")
TOKENS = 64
ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


@dataclass(frozen=True, slots=True)
class Form:
    """One way to observe."""

    name: str
    traced: bool
    arguments: tuple[str, ...] = ()


FORMS = (
    Form("off", False),
    Form("metrics", False, ("--metrics", "127.0.0.1:0")),
    Form("traces 1 %", True, ("--trace-ratio", "0.01")),
    Form("traces 100 %", True, ("--trace-ratio", "1.0")),
    Form("metrics and traces 1 %", True, ("--metrics", "127.0.0.1:0", "--trace-ratio", "0.01")),
)


class _Collector(rpc.TraceServiceServicer):
    def Export(
        self, request: pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> pb.ExportTraceServiceResponse:
        return pb.ExportTraceServiceResponse()


def _collect(ready: Connection) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    rpc.add_TraceServiceServicer_to_server(_Collector(), server)  # type: ignore[no-untyped-call]
    ready.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


@contextmanager
def collector() -> Iterator[str]:
    """A collector in a process of its own; its endpoint."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_collect, args=(theirs,), daemon=True)
    process.start()
    yield f"http://127.0.0.1:{ours.recv()}"
    process.terminate()
    process.join()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def load(address: str, calls: int, at_once: int) -> None:
    """So many calls, interactions of four."""
    async with Client(address, user="bench") as client:

        async def user(share: int) -> None:
            for _ in range(share // 4):
                async with client.interaction() as interaction:
                    for number in range(4):
                        await interaction.generate(f"call {number}", max_tokens=TOKENS, ignore_eos=True)

        await asyncio.gather(*(user(calls // at_once) for _ in range(at_once)))


def measure(form: Form, endpoint: str, calls: int, at_once: int) -> tuple[float, float]:
    """CPU milliseconds per call and calls per second."""
    os.environ.pop(ENDPOINT, None)
    if form.traced:
        os.environ[ENDPOINT] = endpoint
    arguments = ["--user-per-minute", "1000000", *form.arguments]
    with (
        tempfile.TemporaryDirectory() as logs,
        Stack(workers=1, log_dir=Path(logs), model="m", engine="fake", gateway_args=arguments) as stack,
    ):
        [gateway] = [process for process in stack.processes if process.name == "gateway"]
        asyncio.run(load(stack.gateway, at_once * 4, at_once))
        before, began = cpu_seconds(gateway.pid), time.monotonic()
        asyncio.run(load(stack.gateway, calls, at_once))
        seconds = time.monotonic() - began
        return (cpu_seconds(gateway.pid) - before) * 1e3 / calls, calls / seconds


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.telemetry")
    parser.add_argument("--calls", type=int, default=1600)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {form.name: [] for form in FORMS}
    with collector() as endpoint:
        for _ in range(args.rounds):
            for form in FORMS:
                found[form.name].append(measure(form, endpoint, args.calls, args.at_once))
    print(f"{processor()}; commit {commit()}; {args.rounds} rounds of {args.calls} calls, {args.at_once} at once\n")
    print("| form | gateway CPU ms per call | against off | calls per second |\n|---|---|---|---|")
    off = statistics.median(cpu for cpu, _ in found["off"])
    for form in FORMS:
        cpu, rate = (statistics.median(values) for values in zip(*found[form.name], strict=True))
        print(f"| {form.name} | {cpu:.2f} | {cpu / off:.2f} | {rate:.0f} |")


if __name__ == "__main__":
    main()
