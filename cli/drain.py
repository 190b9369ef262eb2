"""`fairlead drain WORKER`: the worker gets no new requests, and exits when its requests are done."""

import argparse

from cli import admin


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("drain", help="let a worker finish its requests and exit")
    parser.add_argument("worker", help="name of the worker, as `fairlead status` shows it")
    admin.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Request the drain and return; raises a FairleadError."""
    with admin.leader(args) as (scheduler, _):
        scheduler.drain(args.worker)
    print(f"{args.worker} drains; `fairlead status` shows when it is gone")
    return 0
