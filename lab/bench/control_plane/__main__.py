"""The control plane's cost per call: CPU time, requests per second, time added to the first token.

    python -m lab.bench.control_plane [--calls 160] [--callers 32] [--workers 4] [--rounds 3] [--prompt-bytes 8192]
                                  [--token-bytes 4] [--tls] [--routers sglang vllm litellm] [--beside FOLDER]

Every call sends a prompt and receives a stream of 64 tokens. Fake workers answer at once (burst) or at 10 ms per token.
There are three jobs. In the first two all callers begin together, and so do their next calls: their prompts wait for
each other. In the third callers begin apart, evenly over the time of a call; read the time to the first token there.
Each caller has a connection of its own. The fake tokenizer makes a token of every four bytes of a prompt, as models'
tokenizers do of English text. Fairlead runs over gRPC and over HTTP, with four tokens per message and with one, and
with --tls also behind TLS. It is compared with one stream per call straight to the workers, with bare servers on the
same libraries that send the same chunks without any logic, with a bare gateway that makes the same exchanges with
workers and scheduler and decides nothing, and with public HTTP routers over HTTP workers, installed into
`.cache/routers`. All systems are up at once and run the job in turns, in alternating order; figures are medians
over the rounds. The ratio is that of the CPU time to the first router's, round by round. With --beside another checkout
of this project is one of the systems, and the ratios to it are printed too.

CPU counts the processes in between: gateway and scheduler, the bare server, or the router. The CPU time per token is
the gateway's: what a call of 64 tokens costs more than a call of one token, divided by 63. The added time is the time
to the first token less that of the direct path. Two more tables show the time of a dispatch request at 500 decisions a
second, and the start-up times of gateway and scheduler.
"""

import argparse
import asyncio
import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from cli.stack import Stack
from lab.bench.control_plane import table
from lab.bench.control_plane.bare import bare_server
from lab.bench.control_plane.bare_gateway import bare_gateway
from lab.bench.control_plane.beside import other_checkout
from lab.bench.control_plane.dispatching import Rate, latencies
from lab.bench.control_plane.job import TOKENS, Job
from lab.bench.control_plane.routers import environment
from lab.bench.control_plane.stack import Gateway, plain, processes, start, with_tls
from lab.bench.control_plane.starting import median, starts
from lab.bench.control_plane.straight import straight_to_a_worker
from lab.bench.control_plane.system import Rounds, System, alternate
from lab.bench.control_plane.ways import ways
from lab.bench.machine import commit, processor

PACES = ((0.0, False), (0.01, False), (0.01, True))  # seconds per token, and whether callers begin apart
STARTS = 5
READY = {
    "global_scheduler": "listening",
    "gateway": "ready",
}  # the log message when ready; the gateway then has a worker
RATE = Rate(per_second=500, seconds=10.0, prompt_tokens=2048)
OTHER = " of the other checkout"
STRAIGHT = "gRPC, straight to the workers"
HTTP_STRAIGHT = "HTTP, straight to one worker"
FORWARDED = "HTTP, coalesced"


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    args = _arguments()
    sizes = f"{args.calls} calls a round, {args.rounds} rounds, {args.callers} callers, {args.workers} workers"
    print(f"{processor()}; commit {commit()}; {sizes}, prompts of {args.prompt_bytes} bytes")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print(table.heading())
    for step_seconds, apart in PACES:
        _compare(Job(args.calls, args.callers, step_seconds, args.prompt_bytes, apart=apart), args)
    with start(args.workers, 0.0, args.callers, args.prompt_bytes, args.token_bytes) as stack:
        took = asyncio.run(latencies(stack, RATE))
        p50, p99 = (took[int(len(took) * part)] * 1e3 for part in (0.5, 0.99))
        print(f"\na decision at {RATE.per_second}/s, {RATE.prompt_tokens} tokens: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        _starts(stack)
    print(f"\nload of the machine after: {os.getloadavg()[0]:.1f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.bench.control_plane")
    parser.add_argument("--calls", type=int, default=160, help="number of calls to each system in each round")
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-bytes", type=int, default=8192)
    parser.add_argument("--token-bytes", type=int, default=4, help="bytes of a prompt for each of its tokens")
    parser.add_argument("--tls", action="store_true", help="also measure a gateway with TLS")
    parser.add_argument(
        "--routers", nargs="*", default=[], choices=environment.ROUTERS, help="public routers to measure"
    )
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout of this project to measure")
    return parser.parse_args()


def _compare(job: Job, args: argparse.Namespace) -> None:
    """Print the lines of one pace."""
    with ExitStack() as up:
        stack = up.enter_context(start(args.workers, job.step_seconds, job.callers, job.prompt_bytes, args.token_bytes))
        gateways = {"": plain(stack)}
        if args.tls:
            gateways[" with TLS"] = up.enter_context(with_tls(stack))
        if args.beside:
            sizes = (args.workers, job.step_seconds, job.callers, job.prompt_bytes, args.token_bytes)
            gateways[OTHER] = up.enter_context(other_checkout(args.beside, *sizes))
        fronts = _fronts(gateways)
        systems = [System(STRAIGHT, lambda job: asyncio.run(straight_to_a_worker(stack, job))), *fronts]
        systems += [*_bare(up, stack, job), *_routers(up, job, args)]
        single = alternate(fronts, replace(job, tokens=1), 1)
        measured = alternate(systems, job, args.rounds)
    reference = args.routers[0] if args.routers else ""
    for name, rounds in measured.items():
        us_per_token = _us_per_token(rounds, single[name]) if name in single else None
        print(table.row(job, rounds, measured, reference, us_per_token), flush=True)
    for name, rounds in measured.items():
        if other := measured.get(name + OTHER):
            print(f"{job}: CPU of {name}: {rounds.ratio(other):.2f} times that{OTHER}")


def _us_per_token(whole: Rounds, single: Rounds) -> float:
    """Return the gateway's CPU microseconds for each token beyond the first."""
    return (whole.cpu_ms("gateway") - single.cpu_ms("gateway")) / (TOKENS - 1) * 1e3


def _fronts(gateways: dict[str, Gateway]) -> list[System]:
    return [
        System(f"Fairlead, {front}{suffix}", run, ("gateway", "scheduler"), STRAIGHT)
        for suffix, gateway in gateways.items()
        for front, run in ways(gateway).items()
    ]


def _bare(up: ExitStack, stack: Stack, job: Job) -> list[System]:
    """Start the bare servers, and a bare gateway before the workers of the stack."""
    address, pid = up.enter_context(bare_gateway(stack))
    forwarding = ways(Gateway("", address, {**processes(stack), "gateway": pid}))[FORWARDED]
    systems = [System(f"bare gateway, {FORWARDED}", forwarding, ("gateway", "scheduler"), STRAIGHT)]
    over_grpc, grpc_pid = up.enter_context(bare_server("grpc", job.step_seconds))
    over_http, http_pid = up.enter_context(bare_server("http", job.step_seconds))
    gateway = Gateway(over_grpc, over_http, {"grpc": grpc_pid, "http": http_pid})
    return systems + [
        System(f"bare server, {front}", run, ("grpc" if front.startswith("gRPC") else "http",))
        for front, run in ways(gateway).items()
    ]


def _routers(up: ExitStack, job: Job, args: argparse.Namespace) -> list[System]:
    """Start the routers and their workers."""
    if not args.routers:
        return []
    python = environment.install()
    urls = up.enter_context(environment.workers(python, args.workers, job.step_seconds))
    systems = [System(HTTP_STRAIGHT, lambda job: environment.load(python, urls[0], job, {}))]
    for name in args.routers:
        url, pid = up.enter_context(environment.router(python, name, urls))
        systems.append(_router(python, name, url, pid))
    return systems


def _router(python: Path, name: str, url: str, pid: int) -> System:
    return System(name, lambda job: environment.load(python, url, job, {name: pid}), (name,), HTTP_STRAIGHT)


def _starts(stack: Stack) -> None:
    print(f"\n| start to ready, median of {STARTS} | wall s | CPU s |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as logs:
        for module, ready in READY.items():
            took = median(starts(stack, Path(logs), module, ready, STARTS))
            print(f"| {module} | {took.wall:.2f} | {took.cpu:.2f} |", flush=True)


if __name__ == "__main__":
    main()
