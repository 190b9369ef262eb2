"""The requests of the VTC authors' published runs of Chatbot Arena: 27 clients, ten minutes (VTC section 5.3)."""

from collections.abc import Callable, Mapping
from pathlib import Path

from lab.reproduction.item import Item, Report, Study
from lab.reproduction.published import ASKED, Requests
from lab.reproduction.reference import run_names
from lab.reproduction.sources import Sources
from lab.reproduction.systems import slora
from lab.reproduction.vtc_system import A10G, KV_TOKENS
from simulation.run import Scenario, SimulationRun
from simulation.simulation_job import SimulationJob
from simulation.traces import SourceMissing

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


def later(folder: Path) -> dict[str, SimulationJob]:
    """Return VTC with and without an oracle on copies of the workload whose arrivals differ by less than a second."""
    return {
        f"{name}, copy {seed}": Scenario(slora(A10G, POLICIES[name], KV_TOKENS), Requests(folder, WORKLOAD, seed))
        for name in ("VTC", "VTC (oracle)")
        for seed in range(COPIES)
    }


def jobs(folder: Path, cost: str = "weighted-tokens") -> dict[str, SimulationJob]:
    """Return the workload under every scheduler of section 5.3."""
    workload = Requests(folder, WORKLOAD)
    jobs: dict[str, SimulationJob] = {
        name: Scenario(slora(A10G, policy, KV_TOKENS, cost), workload) for name, policy in POLICIES.items()
    }
    for limit in LIMITS:
        jobs[f"RPM({limit})"] = Scenario(slora(A10G, "fcfs", KV_TOKENS, cost, limit), workload)
    return jobs


def item(
    name: str,
    figure: str,
    read: Callable[[Mapping[str, SimulationRun]], Report],
    cost: str = "weighted-tokens",
    more: Callable[[Path], Mapping[str, SimulationJob]] = lambda _folder: {},
) -> Item:
    """Make an item on the workload, and on the jobs that `more` makes from the folder of the published runs."""

    def study(sources: Sources) -> Study:
        folder = sources.reference
        if folder is None:
            raise SourceMissing(ASKED)
        if WORKLOAD not in run_names(folder):
            raise SourceMissing(f"needs the published run {WORKLOAD}, which {folder} does not have")
        return Study(SETUP, {**jobs(folder, cost), **more(folder)}, read)

    return Item(name, f"VTC {figure}", study)
