"""The systems that the DLPM paper compares (section 6.1), on SGLang-like workers."""

from collections.abc import Callable, Mapping

from lab.reproduction.item import Item, Report, Study
from lab.reproduction.programs import Programs, Sender
from lab.reproduction.sources import Sources
from lab.reproduction.systems import MeasuredPool, MeasuredWorker
from simulation.run import Scenario, SimulationRun
from simulation.simulation_job import SimulationJob
from simulation.spec import ClusterSpec
from simulation.step_time import Profile, profile

Runs = Mapping[str, SimulationRun]
# Local and global policy by scheduler.
SCHEDULERS = {
    "DoubleQ": ("dlpm", "doubleq"),
    "RR + LPM": ("lpm", "round-robin"),
    "Preble": ("lpm", "preble"),
    "VTC": ("vtc", "per-client-round-robin"),
}
# Possible variants of the systems that the paper measured.
VARIATIONS = {
    "RR + SGLang's LPM": ("sglang-lpm", "round-robin"),
    "Preble, fixed": ("lpm", "preble-fixed"),
}
PREBLES = ("Preble", "Preble, fixed")
TWO_PREBLES = (
    'There are two of Preble: "Preble" takes affinity from a worker with 1.5 times the shortest queue; "Preble, fixed" '
    "never leaves a match above one half, since section 7.1 says that the measured one let client 0 monopolize a GPU."
)
A100 = profile("a100-80g", "llama-3.1-8b")
A10G = profile("a10g", "llama-3.2-3b")
CLIENT_QUANTUM = 20_000  # Q^u; the paper does not state it
WORKER_QUANTUM = 40_000  # Q^w: the largest in the paper's Figure 10
SETUP = (
    "SGLang-like workers: the queue is looked at after every tenth decoding step, a step takes in 8,192 prompt tokens, "
    f"256 requests at a time. DLPM as printed, Q^u = {CLIENT_QUANTUM:,}, Q^w = {WORKER_QUANTUM:,} (Q^u is not given in "
    "the paper). Preble's workers run LPM, without its priority queue."
)


def system(
    scheduler: str,
    workers: int,
    gpu: Profile = A100,
    *,
    client_quantum: int = CLIENT_QUANTUM,
    worker_quantum: int = WORKER_QUANTUM,
    block_tokens: int = 16,
) -> ClusterSpec:
    """Return `workers` GPUs under one of SCHEDULERS or VARIATIONS."""
    local, across = (SCHEDULERS | VARIATIONS)[scheduler]
    worker = MeasuredWorker(
        profile=gpu,
        policy=local,
        quantum_tokens=client_quantum,
        kv_tokens=gpu.kv_tokens // block_tokens * block_tokens,
        block_tokens=block_tokens,
        max_running=256,
        token_budget=8192,
        strict_paper=True,
        decode_run=10,
    )
    return MeasuredPool(
        workers=workers, worker=worker, route=across, route_quantum_tokens=worker_quantum, route_strict_paper=True
    )


def programs(seconds: float, *senders: Sender) -> Programs:
    """Return the workload of these senders."""
    return Programs(senders, seconds)


def item(name: str, figure: str, setup: str, jobs: Mapping[str, SimulationJob], read: Callable[[Runs], Report]) -> Item:
    """Make an item that needs no data."""

    def study(_sources: Sources) -> Study:
        return Study(f"{setup} {SETUP}", jobs, read)

    return Item(name, f"DLPM {figure}", study)


def under_all(workload: Programs, workers: int, gpu: Profile, *variations: str) -> dict[str, SimulationJob]:
    """Return the workload under every scheduler and under these variations."""
    return {name: Scenario(system(name, workers, gpu), workload) for name in (*SCHEDULERS, *variations)}
