"""`fairlead up`: run gateway, scheduler and workers on this machine until Ctrl-C.

Engines that run already may take the place of the workers, and all of Fairlead may stand behind an Envoy.
"""

import argparse
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from cli import endpoint
from cli.beside import parse_engines, told, with_events
from cli.envoy_stack import EnvoyStack
from cli.listener import check_addresses
from cli.option_types import pool_size
from cli.service_process import ending_signals
from cli.stack import Stack
from serving import model_name
from serving.config import ConfigError

CHECK_SECONDS = 0.5
OF_ENVOY = ("picker_arg", "limiter_arg")  # options that only --envoy has
# Options that go with neither --envoy nor --beside, and those that do not go with one of them.
OF_WORKERS = ("model", "engine")
NOT_OF_ENVOY = (*OF_WORKERS, "beside", "listen", "page_listen", "scheduler_arg", "gateway_arg")
NOT_OF_BESIDE = (*OF_WORKERS, "workers")


class _Stopped(Exception):
    """The exception that Ctrl-C, SIGTERM or the end of the terminal raises."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("up", help="start gateway, scheduler and workers on this machine")
    parser.add_argument(
        "--workers",
        type=pool_size,
        default=min(2, os.cpu_count() or 1),
        help="number of workers (default: %(default)s)",
    )
    parser.add_argument(
        "--model", default=model_name.BUILT_IN, help="built-in name, path or hub id (default: %(default)s)"
    )
    parser.add_argument(
        "--engine",
        default="transformers",
        choices=("transformers", "vllm", "fake"),
        help="engine of the workers (default: %(default)s)",
    )
    parser.add_argument(
        "--beside",
        default="",
        metavar="URLS",
        help="instead of workers of its own, serve these engines, each a `vllm serve`, separated by commas: "
        "http://127.0.0.1:8001,http://127.0.0.1:8002. KV events are found at vLLM's ports, or named: "
        "http://127.0.0.1:8001?kv-events=tcp://127.0.0.1:5557&kv-replay=tcp://127.0.0.1:5558",
    )
    parser.add_argument("--listen", default="127.0.0.1:7000", help="the gateway's address (default: %(default)s)")
    parser.add_argument(
        "--http-listen",
        default="127.0.0.1:8000",
        help="address of the gateway's OpenAI HTTP API (default: %(default)s)",
    )
    parser.add_argument(
        "--page-listen",
        default="127.0.0.1:7080",
        help="address of the page that shows each client's service; empty for none (default: %(default)s)",
    )
    parser.add_argument(
        "--envoy",
        action="store_true",
        help="instead, start an Envoy at --http-listen with endpoint picker and rate limit service, in front of "
        "as many fake engines as --workers says (needs the extra `envoy`)",
    )
    parser.add_argument("--log-dir", type=Path, help="folder for the services' logs (default: a new temporary one)")
    for service in ("scheduler", "worker", "gateway", "picker", "limiter"):
        parser.add_argument(
            f"--{service}-arg",
            action="append",
            default=[],
            metavar="ARG",
            help=f"argument for the {service}, repeatable: --{service}-arg=--log-level=debug",
        )
    parser.set_defaults(run=partial(run, parser))


def run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """Serve until a signal ends it, or the last worker drains; raises StackError when a service fails."""
    if args.envoy:
        _refuse(parser, args, NOT_OF_ENVOY, "only without --envoy")
    else:
        _refuse(parser, args, OF_ENVOY, "only with --envoy")
    if args.beside:
        _refuse(parser, args, NOT_OF_BESIDE, "only without --beside")
    with contextlib.suppress(_Stopped):
        for number in ending_signals():
            signal.signal(number, _stop)
        if args.envoy:
            _run_behind_envoy(args)
        else:
            _run_workers(args)
    print("stopped", flush=True)
    return 0


def _log_folder(log_dir: Path | None) -> Path:
    if log_dir is None:
        return Path(tempfile.mkdtemp(prefix="fairlead-logs-"))
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--log-dir: cannot make {log_dir}: {error.strerror}") from error
    if not os.access(log_dir, os.W_OK | os.X_OK):
        raise ConfigError(f"--log-dir: cannot write to {log_dir}")
    return log_dir


def _refuse(parser: argparse.ArgumentParser, args: argparse.Namespace, names: Sequence[str], reason: str) -> None:
    for name in names:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')}: {reason}")


def _run_workers(args: argparse.Namespace) -> None:
    engines = with_events(parse_engines(args.beside)) if args.beside else []
    if not engines and args.engine != "fake":
        try:
            model_name.check(args.model)
        except OSError as error:
            raise ConfigError(f"--model {args.model}: {error}") from error
    optional = {"--http-listen": args.http_listen, "--page-listen": args.page_listen}
    check_addresses({"--listen": args.listen, **{option: text for option, text in optional.items() if text}})
    logs = _log_folder(args.log_dir)
    stack = Stack(
        workers=len(engines) or args.workers,
        log_dir=logs,
        model=args.model,
        engine=args.engine,
        engines=[engine.arguments for engine in engines],
        listen=args.listen,
        http_listen=args.http_listen,
        page_listen=args.page_listen,
        scheduler_args=args.scheduler_arg,
        worker_args=args.worker_arg,
        gateway_args=args.gateway_arg,
    )
    parts = _counted(len(engines), "adapter") if engines else _counted(args.workers, "worker")
    print(f"starting {parts}; logs: {logs}", flush=True)
    try:
        stack.launch()
        with endpoint.published(endpoint.Endpoint(stack.gateway, stack.scheduler, stack.secret, str(logs))):
            stack.await_workers()
            addresses = ", ".join(filter(None, [stack.gateway, stack.http]))
            print(f"ready: gateway {addresses}, scheduler {stack.scheduler}; try: fairlead chat", flush=True)
            for line in told(engines, args.worker_arg):
                print(line, flush=True)
            if stack.page:
                print(f"watch: {stack.page}", flush=True)
            _serve(stack)
    finally:
        stack.stop()


def _run_behind_envoy(args: argparse.Namespace) -> None:
    logs = _log_folder(args.log_dir)
    stack = EnvoyStack(
        engines=args.workers,
        listen=args.http_listen,
        log_dir=logs,
        engine_args=args.worker_arg,
        picker_args=args.picker_arg,
        limiter_args=args.limiter_arg,
    )
    print(f"starting Envoy before {_counted(args.workers, 'fake engine')}; logs: {logs}", flush=True)
    try:
        stack.start()
        print(f"ready: {stack.curl}", flush=True)
        while True:
            stack.check_alive()
            time.sleep(CHECK_SECONDS)
    finally:
        stack.stop()


def _serve(stack: Stack) -> None:
    """Return when no worker is left: without workers, no request could be answered."""
    while stack.workers:
        for name in stack.departed():
            print(f"{name} has drained and left; {_counted(len(stack.workers), 'worker')} left", flush=True)
        time.sleep(CHECK_SECONDS)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _stop(_number: int, _frame: FrameType | None) -> None:
    # The first signal starts the orderly shutdown; a second one must not interrupt it.
    for number in ending_signals():
        signal.signal(number, signal.SIG_IGN)
    raise _Stopped
