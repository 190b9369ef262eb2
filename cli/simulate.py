"""`fairlead simulate` and `fairlead tune`: an operator's own workload under several configurations."""

import argparse
import math
import os
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from pathlib import Path

from cli.jobs import run_jobs
from fairlead.errors import InvalidRequest
from global_scheduler.core.policies import POLICIES as ROUTES
from simulation.hardware import GPUS, MODELS
from simulation.reproduction.item import Chart, Line, Report
from simulation.reproduction.measures import received
from simulation.reproduction.run import Run, Scenario
from simulation.reproduction.writing import write
from simulation.spec import ADMISSIONS, LOCAL_POLICIES, ClusterSpec, WorkerSpec
from simulation.step_time import Measured, Profile, profile
from simulation.traces import Trace
from simulation.what_if import HEADER, Summary, pareto, reasons, recommended, summarize
from throttler.core.profiles import Limits

MOST_LINES = 8  # clients in a plot: those that sent most
CLIENT_QUANTA = "256,2048,16384"
WORKER_QUANTA = "2048,16384,131072"


def whole(text: str) -> int:
    """A whole number from 1 up, as an option."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def wholes(text: str) -> list[int]:
    """Several, separated by commas."""
    return [whole(number) for number in text.split(",")]


def above_zero(text: str) -> float:
    """A number above 0, as an option."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def add_workload_options(parser: argparse.ArgumentParser) -> None:
    """What both commands simulate on."""
    parser.add_argument("--trace", type=Path, required=True, help="trace (.csv, .csv.gz) or request log (.jsonl)")
    parser.add_argument("--limit", type=whole, help="only the first so many requests")
    parser.add_argument("--speed", type=above_zero, default=1.0, help="arrivals so many times as fast (default: 1)")
    parser.add_argument(
        "--starts-per-minute", type=above_zero, help="interactions begin at this rate (default: at the trace's times)"
    )
    parser.add_argument("--workers", type=whole, default=1, help="GPUs (default: %(default)s)")
    parser.add_argument("--gpu", default="a100-80g", choices=sorted(GPUS), help="default: %(default)s")
    parser.add_argument("--model", default="llama-3.1-8b", choices=sorted(MODELS), help="default: %(default)s")
    parser.add_argument(
        "--profile", type=Path, help="measured step times (fairlead calibrate) instead of GPU and model"
    )
    parser.add_argument("--kv-tokens", type=whole, help="KV cache per worker (default: what the GPU has room for)")
    parser.add_argument("--max-prompt-tokens", type=whole, default=65_536, help="longer prompts are refused")
    parser.add_argument("--max-running", type=whole, default=256, help="requests at a time (default: %(default)s)")
    parser.add_argument("--throttle", default="none", choices=sorted(ADMISSIONS), help="default: %(default)s")
    parser.add_argument("--decode-run", type=whole, default=1, help="decoding steps between two looks at the queue")
    parser.add_argument("--out", type=Path, default=Path("simulation-results"), help="folder for CSV and SVG files")
    parser.add_argument("--processes", type=whole, default=os.cpu_count() or 1, help="in parallel (default: all cores)")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("simulate", help="your own trace under several policies")
    add_workload_options(parser)
    parser.add_argument("--policy", default="dlpm", help="local policies, comma-separated (default: %(default)s)")
    parser.add_argument("--route", default="doubleq", help="global policies, comma-separated (default: %(default)s)")
    parser.add_argument("--quantum-tokens", type=whole, default=512, help="Q^u (default: %(default)s)")
    parser.add_argument("--route-quantum-tokens", type=whole, default=4096, help="Q^w (default: %(default)s)")
    parser.add_argument(
        "--user-per-minute", type=whole, default=60, help="T_user of the throttle (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """A row per pair of policies."""
    workload(args).rows()  # what is wrong with it is said before anything starts
    pairs = product(_names(args.policy, LOCAL_POLICIES), _names(args.route, ROUTES))
    quanta = args.quantum_tokens, args.route_quantum_tokens
    scenarios = {
        f"{local} + {across}": scenario(args, local, across, *quanta, args.user_per_minute) for local, across in pairs
    }
    summaries, refusals = [], []
    for name, result in results(scenarios, args.processes):
        summaries.append(summarize(name, result))
        refusals += [f"{name}: {reason}" for reason in reasons(result)]
        write(args.out, name.replace(" ", ""), Report(_curves(result), [_chart(name, result)]))
    write(args.out, "summary", Report([HEADER, *(summary.cells() for summary in summaries)]))
    print("\n".join([table(summaries), *refusals]))
    print(f"plots and numbers: {args.out}")
    return 0


def results(scenarios: dict[str, Scenario], processes: int) -> Iterator[tuple[str, Run]]:
    """Each name's run; equal scenarios are run once."""
    for job, result in run_jobs(scenarios.values(), processes):
        for name, wanted in scenarios.items():
            if wanted == job:
                yield name, result


def scenario(
    args: argparse.Namespace, local: str, across: str, client_quantum: int, worker_quantum: int, limit: int
) -> Scenario:
    """One configuration of the pool that the options describe."""
    times = _profile(args)
    worker = WorkerSpec(
        profile=times,
        policy=local,
        quantum_tokens=client_quantum,
        kv_tokens=args.kv_tokens or times.kv_tokens,
        max_prompt_tokens=args.max_prompt_tokens,
        max_running=args.max_running,
        decode_run=args.decode_run,
    )
    spec = ClusterSpec(
        workers=args.workers,
        worker=worker,
        route=across,
        route_quantum_tokens=worker_quantum,
        throttle=args.throttle,
        limits=Limits(user_per_minute=limit),
    )
    return Scenario(spec, workload(args))


def workload(args: argparse.Namespace) -> Trace:
    """The trace that the options describe."""
    return Trace(args.trace, args.limit, args.speed, args.starts_per_minute)


def _profile(args: argparse.Namespace) -> Profile | Measured:
    return Measured.read(args.profile) if args.profile else profile(args.gpu, args.model)


def _names(text: str, known: Collection[str]) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidRequest(f"no such policy: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return names


def table(summaries: Sequence[Summary]) -> str:
    """For the screen."""
    cells = [HEADER, *(tuple(_text(value) for value in summary.cells()) for summary in summaries)]
    widths = [max(len(str(row[column])) for row in cells) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells
    )


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"
    return "-" if value is None else str(value)


def _loudest(result: Run) -> list[str]:
    return sorted(result.clients, key=lambda client: -len(result.of(client)))[:MOST_LINES]


def _curves(result: Run) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [("client", "second", "service")]
    for client in _loudest(result):
        rows += [(client, second, value) for second, value in enumerate(received(result, client)) if second % 10 == 0]
    return rows


def _chart(name: str, result: Run) -> Chart:
    seconds = range(int(result.seconds) + 2)
    lines = [Line(client, seconds, received(result, client)) for client in _loudest(result)]
    return Chart(f"{name}: service received", "seconds", "service", lines)


def front_report(summaries: Sequence[Summary]) -> Report:
    """What `tune` writes."""
    front = pareto(summaries)
    lines = [
        Line("all", [s.worst_client for s in summaries], [s.service for s in summaries]),
        Line("Pareto front", [s.worst_client for s in front], [s.service for s in front]),
    ]
    chart = Chart("throughput and the worst client's wait", "mean TTFT of the worst client, s", "service/s", lines)
    return Report([HEADER, *(summary.cells() for summary in summaries)], [chart])


def recommendation(summaries: Sequence[Summary]) -> str:
    """The front, and one sentence."""
    front = pareto(summaries)
    best = recommended(front)
    text = f"{best.name}: {best.service:,.0f} service/s, the worst client waits {best.worst_client:.2f} s on average"
    return f"Pareto front:\n{table(front)}\nrecommended: {text}"
