"""Scaling of one scheduler, simulated; one table per study.

    python -m lab.bench.scaling pools   --workers 8,64,256,1000 --calls 120 --users 10
    python -m lab.bench.scaling gaps    --workers 8,64,256      --calls 100
    python -m lab.bench.scaling divided --workers 64            --calls 120
    python -m lab.bench.scaling users   --users 10,1000,100000,1000000

pools: users hold conversations (a shared system prompt, four turns). Every eighth user is four times as active, and the
load per worker is the same in every row. gaps: eight users whose demand exceeds the capacity. divided: several
schedulers in place of one. users: the memory per user in every account, and the effect of many one-call users on two
permanent ones.

Calls are per worker, and so are users in `pools`. CPU time is that of the scheduler's core; bytes are the size of
dispatches and reports on the network. Every row runs in its own process.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from multiprocessing import Pool
from typing import Protocol

from lab.bench.machine import commit, processor
from lab.bench.scaling import divided, gaps, pools, users


class Row(Protocol):
    """One picklable row of a table."""

    def run(self) -> str:
        """Return the row's text."""


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _names(text: str) -> list[str]:
    return text.split(",")


def _one(option: str, text: str) -> int:
    if not text.isdecimal():
        raise SystemExit(f"{option}: this study needs one number, got {text!r}")
    return int(text)


STUDIES: dict[str, tuple[Sequence[str], Callable[[argparse.Namespace], Sequence[Row]]]] = {
    "pools": (
        pools.COLUMNS,
        lambda a: list(pools.rows(_numbers(a.workers), a.calls, _one("--users", a.users), a.routes or pools.ROUTES)),
    ),
    "gaps": (gaps.COLUMNS, lambda a: list(gaps.rows(_numbers(a.workers), a.calls, a.routes or gaps.ROUTES))),
    "divided": (divided.COLUMNS, lambda a: list(divided.rows(_one("--workers", a.workers), a.calls))),
    "users": (users.COLUMNS, lambda a: [users.Row(number) for number in _numbers(a.users)]),
}


def main() -> None:
    """Run one study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--workers", default="8,64,256,1000")
    parser.add_argument("--calls", type=int, default=120)
    parser.add_argument("--users", default="10")
    parser.add_argument("--routes", type=_names, help="routes, for pools and gaps (default: those of the study)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="number of parallel processes (default: one per core)"
    )
    args = parser.parse_args()
    columns, rows_of = STUDIES[args.study]
    rows = rows_of(args)
    print(f"{processor()}; commit {commit()}")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    with Pool(args.processes, maxtasksperchild=1) as pool:  # so that each row's memory is its own
        for text in pool.imap(_run, rows, chunksize=1):
            print(text, flush=True)


def _run(row: Row) -> str:
    return row.run()


if __name__ == "__main__":
    main()
