"""`python -m lab.reproduction beyond`: the project's routes and their rivals in every cell of DLPM Figure 7.

Each trial is kept in a file, and a later call runs only those that are missing. Use a new folder after a change of the
simulator or of a policy.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.comparison import INTERRUPTED
from cli.jobs import run_jobs
from cli.option_types import make_folder, whole
from fairlead.errors import FairleadError
from lab.reproduction.beyond_report import report
from lab.reproduction.beyond_trial import Trial, keep, load, trials

NAME = "beyond"
TITLE = "The routes that the project offers and their rivals, in every cell of DLPM Figure 7"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the missing trials and print the tables; return the exit status: 0 success, 1 failure, 130 interrupted."""
    args = _parser().parse_args(argv)
    try:
        make_folder(args.results, "--results")
        wanted = list(trials(args.seeds))
        missing = [] if args.report else [trial for trial in wanted if load(args.results, trial) is None]
        for trial, measures in run_jobs(missing, args.processes):
            assert isinstance(trial, Trial)
            keep(args.results, trial, measures)
        print(report({trial: found for trial in wanted if (found := load(args.results, trial)) is not None}))
    except (FairleadError, OSError) as error:
        print(f"reproduction {NAME}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m lab.reproduction {NAME}", description=__doc__)
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("beyond-results"),
        help="folder of the trials' files (default: %(default)s)",
    )
    parser.add_argument("--seeds", type=whole, default=3, help="number of seeds (default: %(default)s)")
    parser.add_argument("--processes", type=whole, default=1, help="parallel simulations (default: %(default)s)")
    parser.add_argument("--report", action="store_true", help="simulate nothing; print the tables of what is there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
