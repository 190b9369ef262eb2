"""`fairlead flush [WORKER]`: prefix caches drop all blocks that no running request uses."""

import argparse

from cli import admin


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("flush", help="empty the prefix cache of one worker or of all")
    parser.add_argument("worker", nargs="?", help="name of the worker, as `fairlead status` shows it (default: all)")
    admin.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Request the flush and return; raises a FairleadError."""
    with admin.leader(args) as (scheduler, status):
        workers = [args.worker] if args.worker else [member.worker for member in status.cluster.members]
        for worker in workers:
            scheduler.flush(worker)
            print(f"{worker} empties its prefix cache")
    return 0
