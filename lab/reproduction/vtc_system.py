"""VTC section 5.2: the A10G that its synthetic workloads run on, and items that need no other data."""

from collections.abc import Callable, Mapping

from lab.reproduction.fitted import SLORA
from lab.reproduction.item import Item, Report, Study
from lab.reproduction.sources import Sources
from lab.reproduction.streams import Stream, Streams
from lab.reproduction.systems import slora
from simulation.run import Scenario, SimulationRun
from simulation.simulation_job import SimulationJob

Runs = Mapping[str, SimulationRun]
A10G = SLORA["a10g llama-2-7b"]
KV_TOKENS = 10_000
SECONDS = 600
SETUP = "Llama-2-7b on an A10G, 10,000 KV tokens, S-LoRA's batching, step times fitted to the authors' measurements."
BOUND = 4 * KV_TOKENS  # 2 max(w_p L_input, w_q M), Theorem 4.4


def scenario(policy: str, *streams: Stream, cost: str = "weighted-tokens") -> Scenario:
    """Return these clients on the A10G under `policy`."""
    return Scenario(slora(A10G, policy, KV_TOKENS, cost), Streams(streams))


def item(
    name: str, figure: str, jobs: Mapping[str, SimulationJob], read: Callable[[Runs], Report], differs: str = ""
) -> Item:
    """Make an item that needs no data; `differs` states its differences from the paper's setup."""

    def study(_sources: Sources) -> Study:
        return Study(f"{SETUP} {differs}".rstrip(), jobs, read)

    return Item(name, f"VTC {figure}", study)


def both(*streams: Stream) -> dict[str, SimulationJob]:
    """Return the same clients under VTC and under FCFS."""
    return {"VTC": scenario("vtc", *streams), "FCFS": scenario("fcfs", *streams)}
