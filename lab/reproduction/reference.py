"""Published measurements as a reference for the simulator: one file per scheduler and workload, one row per request.

The folder's own README describes the columns. Every run is simulated with its measured arrivals and lengths.
"""

import csv
import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path

from lab.reproduction.systems import slora
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments
from simulation.spec import ClusterSpec
from simulation.step_time import Profile
from simulation.traces import SourceMissing

POLICIES = {
    "FCFS": "fcfs",
    "LCF": "slora-lcf",
    "LShare": "fcfs",  # RPM with FCFS
    "VTC": "slora-vtc",
    "VTC_predict": "slora-predict",
    "VTC_oracle": "slora-oracle",
    "VTC_pred_50": "slora-half",
}
# Workloads that were repeated with the revised code (fair_bench/REVISION.md of the authors' code).
REVISED = frozenset({"overload", "overload-multi", "overload-weighted", "real"})
FRESH = "real"  # the server was restarted for the Arena trace
FIRST_SECONDS = 1.1  # extra time of its first prompt in the fitted runs
A10G_KV_TOKENS = 10_000
PROFILED = "_profile"
SUFFIX = ".csv.gz"
EXTRA_TOKENS = 2  # added by the tokenizer: 41, not 42, prompts of "256" tokens fit into 10,833


@dataclass(frozen=True, slots=True)
class Row:
    """One measured request; times are in seconds, and `latency` is None when it was refused."""

    client: str
    arrival: float
    input_tokens: int
    output_tokens: int
    first_token: float
    latency: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run, where `pool` names GPU and model, and `limit` is RPM's in calls per minute."""

    name: str
    scheduler: str
    workload: str
    pool: str
    kv_tokens: int
    limit: int | None
    rows: tuple[Row, ...]

    def calls(self) -> list[SimulatedCall]:
        """Return the same requests without shared prefixes. Even in "overload-weighted" all clients had equal
        weights."""
        segments = PromptSegments()
        return [
            SimulatedCall(
                number=number,
                client=row.client,
                prompt=segments.fresh(row.input_tokens + EXTRA_TOKENS),
                output_tokens=row.output_tokens,
                arrival=row.arrival,
            )
            for number, row in enumerate(self.rows)
        ]

    def spec(self, profile: Profile) -> ClusterSpec:
        """Return the measured system with the step times of `profile`."""
        policy = POLICIES[self.scheduler.removesuffix(PROFILED)]
        cost = "slora-profiled" if self.scheduler.endswith(PROFILED) else "weighted-tokens"
        revised = self.workload in REVISED and policy != "fcfs"
        if self.workload == FRESH:
            profile = replace(profile, first_seconds=FIRST_SECONDS)
        return slora(profile, policy, self.kv_tokens, cost, self.limit, revised)


def run_names(folder: Path) -> list[str]:
    """Return the names of the runs in the folder's manifest, in its order; raises SourceMissing."""
    manifest = folder / "MANIFEST.json"
    if not manifest.is_file():
        raise SourceMissing(f"no measurements in {folder}: there is no MANIFEST.json")
    return [str(entry["file"]).removesuffix(SUFFIX) for entry in json.loads(manifest.read_text())]


def read_run(folder: Path, name: str) -> Run:
    """Read one run of the folder."""
    with gzip.open(folder / f"{name}{SUFFIX}", "rt") as file:
        rows = tuple(_row(row) for row in csv.DictReader(file))
    parts = name.split("__")
    if parts[0] == "sec6.4":
        scheduler = parts[2].rpartition("-")[0]
        return Run(name, scheduler, parts[3], "a100-80g llama-2-13b", int(parts[1]), None, rows)
    limit = int(parts[1].removeprefix("rpm")) if parts[0] == "LShare" else None
    return Run(name, parts[0], parts[-1], "a10g llama-2-7b", A10G_KV_TOKENS, limit, rows)


def _row(row: dict[str, str]) -> Row:
    latency = float(row["latency_s"])
    return Row(
        client=row["client"],
        arrival=float(row["arrival_s"]),
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        first_token=float(row["first_token_s"]),
        latency=None if latency < 0 else latency,
    )
