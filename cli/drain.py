"""`fairlead drain WORKER`: no new requests for it; it exits when those that it has are done."""

import argparse

from cli import admin


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("drain", help="let a worker finish what it has, then exit")
    parser.add_argument("worker", help="its name, as `fairlead status` shows it")
    admin.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Returns when the worker has been told; raises a FairleadError."""
    with admin.leader(args) as (scheduler, _):
        scheduler.drain(args.worker)
    print(f"{args.worker} drains; `fairlead status` shows when it is gone")
    return 0
