"""The command line: `fairlead <verb>`, or `python -m cli <verb>`."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

# gRPC reads this variable on import, which follows below. Its own log lines would only repeat our one-line message.
os.environ["GRPC_VERBOSITY"] = os.environ.get("GRPC_VERBOSITY", "NONE")

from cli import calibrate, chat, drain, flush, generate, simulate, status, top, trace, tune, up
from cli.demo import command as demo
from cli.service_process import StackError
from fairlead.errors import FairleadError
from serving.config import ConfigError

VERBS = (up, generate, chat, status, top, trace, drain, flush, demo, simulate, tune, calibrate)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return the exit status: 0 success, 1 failure with a one-line reason, 2 wrong usage.

    Without a verb, print the help.
    """
    parser = argparse.ArgumentParser(
        prog="fairlead", description="Serve language models to many users, fairly and fast."
    )
    parser.add_argument("--version", action="version", version=f"fairlead {version('fairlead')}")
    commands = parser.add_subparsers(metavar="VERB", dest="verb")
    for verb in VERBS:
        verb.add_parser(commands)
    args = parser.parse_args(argv)
    if args.verb is None:
        parser.print_help()
        return 0
    try:
        return int(args.run(args))
    except (FairleadError, StackError, ConfigError, OSError) as error:
        print(f"fairlead: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
