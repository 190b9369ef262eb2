"""The requests of the VTC authors' published runs of Chatbot Arena: 27 clients, ten minutes (VTC section 5.3)."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlead.outcomes import Outcome
from simulation.reference import Run as Published
from simulation.reference import read_run, run_names
from simulation.reproduction.item import Ended, Item, Job, Report, Study
from simulation.reproduction.run import Record, Run, Scenario
from simulation.reproduction.vtc_synthetic import A10G, KV_TOKENS
from simulation.sources import SourceMissing, Sources
from simulation.spec import slora
from simulation.workload import OpenLoop

WORKLOAD = "FCFS__real"  # every real run has the same requests
SECONDS = 600
COPIES = 6
LIMITS = (5, 10, 15, 20, 30)
SETUP = (
    "The arrivals and lengths of the authors' published runs, ten minutes, 27 clients. Llama-2-7b on an A10G, 10,000 "
    "KV tokens, S-LoRA's batching."
)
POLICIES = {
    "FCFS": "fcfs",
    "LCF": "lcf",
    "VTC": "vtc",
    "VTC (predict)": "vtc-predict",
    "VTC (oracle)": "vtc-oracle",
}


@dataclass(frozen=True, slots=True)
class Arena:
    """The workload of the published runs in `folder`; with a `seed`, every arrival is up to a second later."""

    folder: Path
    seed: int | None = None

    def make(self) -> OpenLoop:
        """See WorkloadSpec."""
        calls = read_run(self.folder, WORKLOAD).calls()
        if self.seed is not None:
            rng = random.Random(self.seed)
            for call in calls:
                call.arrival += rng.random()
            calls.sort(key=lambda call: (call.arrival, call.number))
        return OpenLoop(calls)


@dataclass(frozen=True, slots=True)
class Measured:
    """A job: what was measured, read like a simulated run."""

    folder: Path
    name: str

    def run(self, ended: Ended | None = None) -> Run:
        """Nothing is simulated."""
        return published(read_run(self.folder, self.name))


def published(measured: Published) -> Run:
    """A published run as ours are recorded; requests that were refused never got a token."""
    records = tuple(
        Record(
            number=number,
            client=row.client,
            app="",
            interaction="",
            stage=0,
            last=True,
            arrival=row.arrival,
            admitted=None,
            first=None if row.latency is None else row.arrival + row.first_token,
            ended=row.arrival + (row.latency or 0.0),
            input_tokens=row.input_tokens,
            cached_tokens=0,
            output_tokens=row.output_tokens,
            outcome=Outcome.REJECTED_CLIENT_LIMIT if row.latency is None else Outcome.COMPLETED,
        )
        for number, row in enumerate(measured.rows, start=1)
    )
    return Run(records, {}, max(record.ended for record in records), 0, None)


def later(folder: Path) -> dict[str, Job]:
    """VTC with and without an oracle on copies of the workload that differ by less than a second per arrival."""
    return {
        f"{name}, copy {seed}": Scenario(slora(A10G, POLICIES[name], KV_TOKENS), Arena(folder, seed))
        for name in ("VTC", "VTC (oracle)")
        for seed in range(COPIES)
    }


def jobs(folder: Path, cost: str = "weighted-tokens") -> dict[str, Job]:
    """The workload under every scheduler of section 5.3."""
    workload = Arena(folder)
    jobs: dict[str, Job] = {
        name: Scenario(slora(A10G, policy, KV_TOKENS, cost), workload) for name, policy in POLICIES.items()
    }
    for limit in LIMITS:
        jobs[f"RPM({limit})"] = Scenario(slora(A10G, "fcfs", KV_TOKENS, cost, limit), workload)
    return jobs


def item(
    name: str,
    figure: str,
    read: Callable[[Mapping[str, Run]], Report],
    cost: str = "weighted-tokens",
    more: Callable[[Path], Mapping[str, Job]] = lambda _folder: {},
) -> Item:
    """An item on the workload, and on `more` that comes from the folder of the published runs."""

    def study(sources: Sources) -> Study:
        folder = sources.reference
        if folder is None:
            raise SourceMissing("needs the folder of the measurements: --reference or FAIRLEAD_REFERENCE")
        if WORKLOAD not in run_names(folder):
            raise SourceMissing(f"needs the published run {WORKLOAD}, which {folder} does not have")
        return Study(SETUP, {**jobs(folder, cost), **more(folder)}, read)

    return Item(name, f"VTC {figure}", study)
