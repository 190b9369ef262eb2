"""The command line: `fairlead <verb>`, or `python -m cli <verb>`."""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version

# gRPC reads this variable on import, which follows below. Its own log lines would only repeat our one-line message.
os.environ["GRPC_VERBOSITY"] = os.environ.get("GRPC_VERBOSITY", "NONE")

from cli.service_process import StackError
from fairlead.errors import FairleadError
from serving.config import ConfigError

# Modules in the order of the help.
VERBS = {
    "up": "cli.up",
    "generate": "cli.generate",
    "chat": "cli.chat",
    "status": "cli.status",
    "batch": "cli.batch.command",
    "usage": "cli.usage",
    "top": "cli.top",
    "trace": "cli.trace",
    "drain": "cli.drain",
    "flush": "cli.flush",
    "demo": "cli.demo.command",
    "simulate": "cli.simulate",
    "tune": "cli.tune",
    "calibrate": "cli.calibrate",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return the exit status: 0 success, 1 failure with a one-line reason, 2 wrong usage.

    Without a verb, print the help.
    """
    # A user's name must not end a report on a terminal that lacks a letter.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args = _parsed(sys.argv[1:] if argv is None else argv)
        status = int(args.run(args))
        if sys.stdout is not None:  # as of a service manager that gives it none
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of the output, such as `head`, has all that it wants
        with open(os.devnull, "w") as nothing:  # the interpreter flushes again at its end
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        return 0
    except (FairleadError, StackError, ConfigError, OSError) as error:
        print(f"fairlead: {error}", file=sys.stderr)
        return 1
    except UnicodeError as error:  # of standard input, a file or an argument
        print(f"fairlead: the input is not UTF-8: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="fairlead", description="Serve language models to many users, fairly and fast."
    )
    parser.add_argument("--version", action="version", version=f"fairlead {_version()}")
    commands = parser.add_subparsers(metavar="VERB", dest="verb")
    # A verb waits for the import of its own module only: the simulator's modules take as long as all others.
    for verb in VERBS.keys() & arguments[:1] or VERBS:
        importlib.import_module(VERBS[verb]).add_parser(commands)
    parser.set_defaults(run=partial(_help, parser))
    return parser.parse_args(arguments)


def _version() -> str:
    try:
        return version("fairlead")
    except PackageNotFoundError:
        return "of a checkout that is not installed"


def _help(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
