"""`fairlead up`: gateway, scheduler and workers on this machine, until Ctrl-C."""

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path
from types import FrameType

from cli import endpoint
from cli.stack import Stack

CHECK_SECONDS = 0.5


class _Stopped(Exception):
    """Ctrl-C or SIGTERM."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("up", help="start gateway, scheduler and workers on this machine")
    parser.add_argument(
        "--workers", type=_at_least_one, default=min(2, os.cpu_count() or 1), help="how many (default: %(default)s)"
    )
    parser.add_argument("--model", default="smollm2-135m-instruct", help="built-in name, path or hub id")
    parser.add_argument("--engine", default="transformers", choices=("transformers", "fake"), help="what computes")
    parser.add_argument("--listen", default="127.0.0.1:7000", help="the gateway's address (default: %(default)s)")
    parser.add_argument("--log-dir", type=Path, help="folder for the services' logs (default: a new temporary one)")
    for service in ("scheduler", "worker", "gateway"):
        parser.add_argument(
            f"--{service}-arg",
            action="append",
            default=[],
            metavar="ARG",
            help=f"passed to the {service}, repeatable: --{service}-arg=--log-level=debug",
        )
    parser.set_defaults(run=run)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; raises StackError when a service ends by itself."""
    log_dir = args.log_dir or Path(tempfile.mkdtemp(prefix="fairlead-logs-"))
    stack = Stack(
        workers=args.workers,
        log_dir=log_dir,
        model=args.model,
        engine=args.engine,
        listen=args.listen,
        scheduler_args=args.scheduler_arg,
        worker_args=args.worker_arg,
        gateway_args=args.gateway_arg,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    print(f"starting {args.workers} workers; logs: {log_dir}", flush=True)
    try:
        with stack:
            _serve(stack)
    except _Stopped:
        print("stopped", flush=True)
    return 0


def _serve(stack: Stack) -> None:
    endpoint.write(endpoint.Endpoint(stack.gateway, stack.scheduler, stack.secret))
    try:
        print(f"ready: gateway {stack.gateway}, scheduler {stack.scheduler}; try: fairlead chat", flush=True)
        while True:
            stack.check_alive()
            time.sleep(CHECK_SECONDS)
    finally:
        endpoint.remove()


def _stop(_number: int, _frame: FrameType | None) -> None:
    # The first one starts the orderly end; another one must not interrupt it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise _Stopped
