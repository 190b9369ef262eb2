"""One workload over several ways to share one engine: a quiet user, an agent and a flooder.

    python -m lab.bench.flood [--systems NAME ...] [--threads N] [--seconds 120] [--out flood-results]

Every system serves the same model with the same capacity, and is called through OpenAI's HTTP API by the same client:
vLLM's own server with both of its scheduling policies, LiteLLM's proxy before it, and Fairlead with several policies
over vLLM's executor and over its own engine. It runs in the environment with vLLM (`make vllm-venv`).
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lab.bench.flood.client import Endpoint, connected
from lab.bench.flood.engine import EngineSettings
from lab.bench.flood.figures import Figures, figures
from lab.bench.flood.phase import Phase
from lab.bench.flood.picture import draw
from lab.bench.flood.report import table, write_json
from lab.bench.flood.systems import SYSTEMS, Setting
from lab.bench.flood.trial import trial
from lab.bench.flood.workload import USERS, Workload
from lab.bench.machine import describe
from serving.model_name import BUILT_IN


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    args = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: it ends the servers as well
    args.out.mkdir(parents=True, exist_ok=True)
    engine = EngineSettings(threads=args.threads, model=args.model)
    work = Workload(seed=args.seed, quiet_every=args.quiet_every)
    machine, load = describe("cpu"), os.getloadavg()[0]
    context = {"machine": machine, "load": load, "engine": asdict(engine), "workload": asdict(work)}
    seen: list[tuple[Figures, Phase, Phase]] = []
    rows: list[Figures] = []
    for name in args.systems:
        print(f"{name}: starting", file=sys.stderr, flush=True)
        setting = Setting(engine, _folder(args.out, name), args.per_minute or _equal_limit(rows))
        with SYSTEMS[name](setting) as endpoint:
            alone, flooded = asyncio.run(_trial(endpoint, work, args.alone_seconds, args.seconds))
        rows.append(figures(name, alone, flooded))
        seen.append((rows[-1], alone, flooded))
        print(rows[-1], file=sys.stderr, flush=True)
        write_json(args.out / "flood.json", context, seen)
    (args.out / "flood.svg").write_text(draw(rows))
    print(f"{machine}; {args.threads} threads, load {load:.1f} at the start\n\n{table(rows)}")


async def _trial(endpoint: Endpoint, work: Workload, alone: float, seconds: float) -> tuple[Phase, Phase]:
    async with connected(endpoint) as make_client:
        return await trial(make_client, work, alone, seconds)


def _equal_limit(rows: Sequence[Figures]) -> int:
    """Return a user's part of the calls that the first system answered in a minute."""
    return round(rows[0].calls_per_minute / len(USERS)) if rows else 1


def _folder(out: Path, system: str) -> Path:
    folder: Path = out / system.replace(",", "").replace(" ", "-").lower()
    folder.mkdir(exist_ok=True)
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.flood", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=SYSTEMS,
        default=list(SYSTEMS),
        metavar="NAME",
        help="systems to compare, in this order",
    )
    parser.add_argument("--model", default=BUILT_IN, help="name, path or hub id (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="number of threads of the engine (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the workload (default: %(default)s)")
    parser.add_argument(
        "--quiet-every", type=float, default=2.0, help="seconds between two questions (default: %(default)s)"
    )
    parser.add_argument(
        "--alone-seconds", type=float, default=30.0, help="quiet user without the others (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="all three users (default: %(default)s)")
    parser.add_argument(
        "--per-minute",
        type=int,
        help="LiteLLM's limit for each user, in calls (default: a third of what the first system answered)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("flood-results"), help="folder for the results (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    main()
