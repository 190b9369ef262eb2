"""What a client waits for beside long prompts and long outputs: the batcher alone, and one simulated worker.

    python -m lab.bench.fair_slices [steps | isolation | beside | cost] ... [--policies fcfs vtc dlpm]
    python -m lab.bench.fair_slices mixed --traces FOLDER

`steps` counts the steps to the first token of a request of 64 tokens while another client keeps long prompts open.
`isolation` shows the same, and long outputs, in seconds of a simulated GPU. `mixed` puts both kinds of neighbours
beside the clients of a published trace, whose file is in FOLDER. `beside` counts steps and seconds at an engine that
schedules by itself, as vLLM does, without and with a limit of a prompt's part in a step. `cost` is the host's time for
a step of a worker with a long queue. All but the last are deterministic.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from lab.bench.fair_slices import beside, cost, isolation, mixed, steps
from lab.bench.machine import commit
from simulation.spec import LOCAL_POLICIES


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.fair_slices",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--policies", nargs="+", choices=LOCAL_POLICIES, default=["fcfs", "vtc", "dlpm"])
    parser.add_argument("--traces", type=Path, help=f"the folder of {mixed.TRACE}")
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help="steps, isolation, mixed, beside or cost (default: all)"
    )
    args = parser.parse_args()
    tables: dict[str, Callable[[list[str]], Iterator[str]]] = {"steps": steps.table, "isolation": isolation.table}
    if args.traces is not None:
        tables["mixed"] = partial(mixed.table, traces=args.traces)
    tables["beside"] = beside.table
    tables["cost"] = cost.table
    if unknown := [name for name in args.tables if name not in tables]:
        parser.error(f"expected some of {', '.join(tables)}, got {', '.join(unknown)}; mixed needs --traces")
    print(f"commit {commit()}")
    for name in args.tables or tables:
        print(f"\n{name}\n")
        for line in tables[name](args.policies):
            print(line, flush=True)


if __name__ == "__main__":
    main()
