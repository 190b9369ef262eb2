"""Options of `fairlead simulate` and `fairlead tune` that describe the pool and the workload."""

import argparse
import os
import sys
from pathlib import Path

from cli.option_types import above_zero, make_folder, pool_size, whole
from fairlead.errors import InvalidRequest
from serving.config import ConfigError, cost_function
from simulation.hardware import GPUS, MODELS
from simulation.run import Scenario
from simulation.spec import ADMISSIONS, SERVED, AdmissionMode, ClusterSpec, WorkerSpec
from simulation.step_time import MeasuredProfile, Profile, profile
from simulation.traces import TraceWorkload
from throttler.core.profiles import RateLimits

GPU, MODEL = "a100-80g", "llama-3.1-8b"
LONGEST_PROMPT = 65_536  # a worker's default depends on its model, which a measured profile does not contain
BYTES = 1e9


def add_pool_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the workload and the pool; defaults are those of the worker's own options."""
    _add_workload_options(parser)
    _add_worker_options(parser)
    add = parser.add_argument
    add("--throttle", default="none", choices=sorted(ADMISSIONS), help="throttle of the gateway (default: %(default)s)")
    add(
        "--out",
        type=Path,
        default=Path("simulation-results"),
        help="folder for CSV and SVG files (default: %(default)s)",
    )
    add(
        "--processes",
        type=whole,
        default=os.cpu_count() or 1,
        help="number of parallel simulations (default: all cores)",
    )


def _add_workload_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--trace", type=Path, required=True, help="trace (.csv, .csv.gz) or request log (.jsonl, .jsonl.gz)")
    add("--trace-block-tokens", type=whole, help="tokens per block of the trace, if its name does not imply it")
    add("--limit", type=whole, help="number of requests to read (default: all)")
    add("--speed", type=above_zero, default=1.0, help="factor by which arrivals are faster than recorded (default: 1)")
    add("--starts-per-minute", type=above_zero, help="rate at which interactions begin (default: the trace's times)")


def _add_worker_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--workers", type=pool_size, default=1, help="number of workers, one GPU each (default: %(default)s)")
    add("--gpu", choices=sorted(GPUS), help=f"GPU of each worker (default: {GPU})")
    add("--model", choices=sorted(MODELS), help=f"model that is served (default: {MODEL})")
    add("--profile", type=Path, help="measured step times (from fairlead calibrate) instead of GPU and model")
    add(
        "--kv-tokens",
        type=whole,
        help="size of a worker's KV cache in tokens (default: as many as fit on the GPU)",
    )
    add(
        "--max-prompt-tokens",
        type=whole,
        default=LONGEST_PROMPT,
        help="longest accepted prompt in tokens (default: %(default)s)",
    )
    for name, text in (
        ("max_running", "maximum requests in a batch"),
        ("token_budget", "maximum tokens computed per step"),
        ("block_tokens", "tokens per KV page"),
    ):
        add(
            f"--{name.replace('_', '-')}",
            type=whole,
            default=getattr(SERVED, name),
            help=f"{text} (default: %(default)s)",
        )
    add(
        "--admission",
        default=SERVED.admission,
        choices=[mode.value for mode in AdmissionMode],
        help="KV admission (default: %(default)s)",
    )
    add(
        "--fairness-levels",
        default=SERVED.fairness_levels,
        help="levels at which dlpm divides the service (default: %(default)s)",
    )
    add("--cost", default=SERVED.cost, help="cost function of service (default: %(default)s)")
    add("--decode-run", type=whole, default=1, help="decoding steps per scheduling decision (default: %(default)s)")


def prepare(args: argparse.Namespace) -> int:
    """Check the trace and the output folder, print which requests are left out, and return the number of calls."""
    rows, left_out = workload(args).read()
    make_folder(args.out, "--out")
    for sentence in left_out:
        print(sentence, file=sys.stderr)
    return len(rows)


def workload(args: argparse.Namespace) -> TraceWorkload:
    return TraceWorkload(args.trace, args.limit, args.speed, args.starts_per_minute, args.trace_block_tokens)


def scenario(
    args: argparse.Namespace, local: str, across: str, client_quantum: int, worker_quantum: int, limits: RateLimits
) -> Scenario:
    """Return one configuration of the pool; raises ConfigError for sizes with which no worker would start."""
    times = _step_times(args)
    kv_tokens = _kv_tokens(args, times)
    worker = WorkerSpec(
        profile=times,
        policy=local,
        cost=args.cost,
        fairness_levels=args.fairness_levels,
        quantum_tokens=client_quantum,
        kv_tokens=kv_tokens,
        block_tokens=args.block_tokens,
        max_running=args.max_running,
        token_budget=args.token_budget,
        max_prompt_tokens=args.max_prompt_tokens,
        max_output_tokens=kv_tokens,  # like a worker's default: as long as fits the cache
        admission=AdmissionMode(args.admission),
        decode_run=args.decode_run,
    )
    cost_function(worker.cost)
    try:
        worker.check()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    spec = ClusterSpec(
        workers=args.workers,
        worker=worker,
        route=across,
        route_quantum_tokens=worker_quantum,
        throttle=args.throttle,
        limits=limits,
    )
    return Scenario(spec, workload(args))


def _step_times(args: argparse.Namespace) -> Profile | MeasuredProfile:
    if args.profile is None:
        return profile(args.gpu or GPU, args.model or MODEL)
    for option, value in (("--gpu", args.gpu), ("--model", args.model)):
        if value is not None:
            raise InvalidRequest(f"replaces GPU and model: leave out {option} {value}", "--profile")
    return MeasuredProfile.read(args.profile)


def _kv_tokens(args: argparse.Namespace, times: Profile | MeasuredProfile) -> int:
    """Return the requested size, or as many whole pages as fit; raises InvalidRequest when not even one fits."""
    if isinstance(times, Profile):
        _check_memory(times, args)
    page: int = args.block_tokens
    size: int = args.kv_tokens or times.kv_tokens // page * page
    if size < page:
        raise InvalidRequest(
            f"must be at least a page of {page} tokens, got {args.kv_tokens or times.kv_tokens}", "--kv-tokens"
        )
    return size


def _check_memory(times: Profile, args: argparse.Namespace) -> None:
    gpu, model = args.gpu or GPU, args.model or MODEL
    memory, weights = times.gpu.memory / BYTES, times.model.weight_bytes / BYTES
    if times.kv_tokens < args.block_tokens:
        raise InvalidRequest(
            f"{model} does not fit on {gpu}: {weights:.1f} GB of weights, and nine tenths of its {memory:.0f} GB are "
            f"{0.9 * memory:.1f} GB",
            "--model",
        )
    cache = (args.kv_tokens or 0) * times.model.kv_bytes / BYTES
    if weights + cache > memory:
        raise InvalidRequest(
            f"{args.kv_tokens} tokens take {cache:.1f} GB, the weights {weights:.1f} GB: {gpu} has {memory:.0f} GB",
            "--kv-tokens",
        )
