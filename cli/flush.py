"""`fairlead flush [WORKER]`: prefix caches are emptied of what no running request uses."""

import argparse

from cli import admin


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("flush", help="empty a worker's prefix cache, or everybody's")
    parser.add_argument("worker", nargs="?", help="its name, as `fairlead status` shows it (default: every worker)")
    admin.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Returns when the workers have been told; raises a FairleadError."""
    with admin.leader(args) as (scheduler, status):
        workers = [args.worker] if args.worker else [member.worker for member in status.cluster.members]
        for worker in workers:
            scheduler.flush(worker)
            print(f"{worker} empties its prefix cache")
    return 0
