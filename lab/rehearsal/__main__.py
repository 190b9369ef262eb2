"""Random tests of the whole system: each seed draws one small system, injects faults and checks it with the oracle.

`python -m lab.rehearsal --seeds 1000` runs seeds 0 to 999; a failure prints the command that replays its seed with
every check after every step.
"""

import argparse
import sys
import traceback
from functools import partial
from multiprocessing import Pool

from cli.job_progress import JobProgress
from lab.rehearsal.oracle import EVERY
from lab.rehearsal.rehearsal import rehearse


def _attempt(every: int, seed: int) -> tuple[int, str]:
    try:
        rehearse(seed, every)
    except Exception:  # any error must be reported with its seed
        return seed, traceback.format_exc()
    return seed, ""


def main() -> int:
    """Run the seeds and return the exit status: 1 when a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds to run (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument(
        "--every",
        type=int,
        default=EVERY,
        help="steps from one check of the whole state to the next (default: %(default)s)",
    )
    args = parser.parse_args()
    failed = 0
    with Pool() as pool, JobProgress(sys.stderr) as progress:
        progress.show(0.0, f"0 of {args.seeds} seeds")
        attempts = pool.imap_unordered(
            partial(_attempt, args.every), range(args.first, args.first + args.seeds), chunksize=4
        )
        for done, (seed, error) in enumerate(attempts, start=1):
            progress.show(done / args.seeds, f"{done} of {args.seeds} seeds")
            if error:
                failed += 1
                progress.clear()
                replay = f"python -m lab.rehearsal --seeds 1 --first {seed} --every 1"
                print(f"{error}seed {seed} failed; replay: {replay}")
    print(f"{args.seeds - failed} of {args.seeds} seeds passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
