"""`python -m lab.bench.telemetry`: the cost of telemetry at a gateway, in CPU time per streamed call.

It starts real processes: scheduler, worker with the fake engine, gateway, and a collector that discards all spans. Each
form of telemetry has its own cluster. All clusters run at the same time and are measured in turn in small slices, so
that other load on the machine affects all of them equally. CPU is the gateway's user and system time from /proc. On a
busy machine the noise exceeds the cost; therefore the cost of recording an ended call is also measured alone in this
process, including the export.
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc

from cli.stack import Stack
from fairlead import Client
from fairlead.outcomes import FinishReason, Outcome
from gateway.metrics import CallMetrics
from lab.bench.machine import commit, processor
from serving.telemetry.metrics import Metrics
from serving.telemetry.records import GATEWAY, CallRecord
from serving.telemetry.traces import TailSampler, Traces, otlp_processor

TICKS = os.sysconf("SC_CLK_TCK")
TOKENS = 64
AT_ONCE = 32
ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


NOW = 1_700_000_000_000_000_000
ENDED = CallRecord(
    client="acme/ann", app="agent", request_id="", model="m", worker="w1", policy="dlpm", tier="1",
    outcome=Outcome.COMPLETED, finish_reason=FinishReason.LENGTH,
    prompt_tokens=900, cached_tokens=640, output_tokens=64,
    received=NOW, admitted=NOW + 10**6, dispatched=NOW + 2 * 10**6, queued=NOW + 3 * 10**6,
    scheduled=NOW + 4 * 10**6, first_token=NOW + 5 * 10**7, finished=NOW + 10**9,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """One form of telemetry: the part of ordinary traces that is exported, None without traces, and options for it."""

    name: str
    ratio: str | None = None
    arguments: tuple[str, ...] = ()


FORMS = (
    Form("off"),
    Form("metrics", None, ("--metrics", "127.0.0.1:0")),
    Form("traces 1 %", "0.01"),
    Form("traces 100 %", "1"),
    Form("metrics and traces 1 %", "0.01", ("--metrics", "127.0.0.1:0")),
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
    """Run a collector in its own process, and yield its endpoint."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_collect, args=(theirs,), daemon=True)
    process.start()
    yield f"http://127.0.0.1:{ours.recv()}"
    process.terminate()
    process.join()


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def load(address: str, calls: int, at_once: int) -> None:
    """Make `calls` calls in interactions of four, `at_once` at a time."""
    async with Client(address, user="bench") as client:

        async def user(share: int) -> None:
            for _ in range(share // 4):
                async with client.interaction() as interaction:
                    for number in range(4):
                        await interaction.generate(f"call {number}", max_tokens=TOKENS, ignore_eos=True)

        await asyncio.gather(*(user(calls // at_once) for _ in range(at_once)))


def entering(form: Form, endpoint: str, calls: int) -> float:
    """Return the CPU microseconds, over all threads, per ended call that this process records, in interactions of
    four."""
    metered, ratio = "--metrics" in form.arguments, float(form.ratio or 0)
    processor = otlp_processor({ENDPOINT: endpoint}) if form.ratio else None
    traces, metrics = Traces(processor, TailSampler(ratio)), Metrics(GATEWAY, "127.0.0.1:0" if metered else "", {})
    counts = CallMetrics(metrics.meter)
    began = time.process_time()
    for number in range(calls):
        record = replace(ENDED, interaction=f"i{number // 4}", request_id=f"r{number}")
        traces.call(record)
        counts.call(record)
    traces.shutdown()
    return (time.process_time() - began) * 1e6 / calls


class Running:
    """The cluster of one form, idle except during its slices."""

    def __init__(self, form: Form, endpoint: str, stacks: ExitStack) -> None:
        self.form = form
        self.cpu: list[float] = []  # milliseconds per call, one per slice
        logs = Path(stacks.enter_context(tempfile.TemporaryDirectory()))
        os.environ.pop(ENDPOINT, None)
        environment = {} if form.ratio is None else {ENDPOINT: endpoint, "OTEL_TRACES_SAMPLER_ARG": form.ratio}
        arguments = ["--throttle", "oit:1000000", *form.arguments]
        stack = Stack(
            workers=1, log_dir=logs, model="m", engine="fake", gateway_args=arguments, environment=environment
        )
        self._address = stacks.enter_context(stack).gateway
        [self._gateway] = [process for process in stack.processes if process.name == "gateway"]
        asyncio.run(load(self._address, AT_ONCE * 4, AT_ONCE))

    def measure(self, calls: int) -> None:
        """Make this many calls and record the CPU milliseconds per call."""
        before = cpu_seconds(self._gateway.pid)
        asyncio.run(load(self._address, calls, AT_ONCE))
        self.cpu.append((cpu_seconds(self._gateway.pid) - before) * 1e3 / calls)


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.telemetry")
    parser.add_argument("--calls", type=int, default=256, help="number of calls per slice")
    parser.add_argument("--slices", type=int, default=15)
    parser.add_argument("--entered", type=int, default=10_000, help="number of calls recorded in this process")
    args = parser.parse_args()
    with ExitStack() as stacks:
        endpoint = stacks.enter_context(collector())
        clusters = [Running(form, endpoint, stacks) for form in FORMS]
        for _ in range(args.slices):
            for cluster in clusters:
                cluster.measure(args.calls)
        alone = {form.name: min(entering(form, endpoint, args.entered) for _ in range(3)) for form in FORMS}
    print(f"{processor()}; commit {commit()}; {args.slices} slices of {args.calls} calls each, in turns\n")
    print("| form | gateway CPU ms per call | against off, slice by slice | entering a call, us |\n|---|---|---|---|")
    off = clusters[0].cpu
    for cluster in clusters:
        ratio = statistics.median(mine / theirs for mine, theirs in zip(cluster.cpu, off, strict=True))
        name = cluster.form.name
        print(f"| {name} | {statistics.median(cluster.cpu):.2f} | {ratio:.2f} | {alone[name]:.0f} |")


if __name__ == "__main__":
    main()
