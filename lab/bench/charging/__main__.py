"""What it costs to charge for output when it is generated or reserved: DLPM on one simulated worker.

    python -m lab.bench.charging [--seconds 40] [--traces FOLDER] [--no-limits] [--only TEXT] [--quantum-tokens 512]

The workloads are two users with calls open all the time, of which the first floods the worker; VTC's overloaded
clients; and published traces at rates that overload the worker. With `--no-limits` no caller gives a limit of the
output, so that each call reserves the rest of the context, as at the HTTP front; then both admissions are measured, and
beside the deposit for all that is reserved one for the expected output.

A row shows the largest service gap that the worker measured and the bound that holds for it, in cost units and in
seconds of the run's service; the service of all per second; the part of prompt tokens that were cached; and for all
clients but the heaviest their part of the service and their times to the first token.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from lab.bench.charging.cases import EXPECTED, Case, bursts, hoarders, overload, scenes, traces
from lab.bench.charging.row import COLUMNS, Row
from lab.bench.machine import commit
from local_worker.core.accounts.charging import OutputCharge
from simulation.spec import AdmissionMode


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of the table that the arguments ask for."""
    cases: list[Case] = [*scenes(args.seconds), *overload(), *(traces(args.traces) if args.traces else ())]
    if args.no_limits:
        cases += bursts(args.seconds)
        ways = [(admission, charge) for admission in AdmissionMode for charge in (*OutputCharge, EXPECTED)]
    else:
        cases += hoarders(args.seconds)
        ways = [(AdmissionMode.RESERVE, str(charge)) for charge in OutputCharge]
    for case in cases:
        if args.only in case.name:
            for admission, charge in ways:
                yield Row(case, charge, admission, args.quantum_tokens, is_limited=not args.no_limits)


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.charging", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="simulated seconds of the two users (default: %(default)s)"
    )
    parser.add_argument("--traces", type=Path, help="folder of the published traces, which run too")
    parser.add_argument("--no-limits", action="store_true", help="no caller gives a limit of the output")
    parser.add_argument("--only", default="", help="run only workloads whose name contains this text")
    parser.add_argument("--quantum-tokens", type=int, default=512, help="Q^u, in tokens (default: %(default)s)")
    args = parser.parse_args()
    print(f"simulated; commit {commit()}; Q^u {args.quantum_tokens}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for row in rows(args):
        print(row.run(), flush=True)


if __name__ == "__main__":
    main()
