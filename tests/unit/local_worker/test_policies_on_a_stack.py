"""What the papers claim of local policies, shown by real processes: two users who always have requests waiting.

One floods with four times as many requests at a time. Each user's prompts share a long prefix of its own, and the cache
has room for one of the two beside what is running.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead import Client, Completion
from tests import services
from tests.engines import ENGINES, VLLM_BLOCK, VLLM_DEADLINE, VLLM_SETTINGS
from tests.services import Stack
from tests.system.faults.small_model import save_small_model

PREFIX_BLOCKS = 5
TAIL, OUTPUT = 8, 8
PARALLEL = {"flood": 64, "meek": 16}
CALLS = {"fake": 200, "vllm": 500}  # so many that the gap of FCFS exceeds DLPM's bound, which grows with the block


def settings(engine: str, model: Path) -> tuple[int, dict[str, object]]:
    """The tokens of a block, and the settings of a worker with room for one of the prefixes."""
    if engine == "fake":
        block = 16
        own: dict[str, object] = {"engine": "fake:0.01"}  # the worker, not the gateway, is the bottleneck
    else:
        block = VLLM_BLOCK
        own = {**VLLM_SETTINGS, "model": save_small_model(model)}
    sizes = {"kv_tokens": 10 * block, "max_prompt_tokens": PREFIX_BLOCKS * block + TAIL, "quantum_tokens": 8 * block}
    return block, {**own, **sizes, "max_running": 3, "preemption_quanta": 1}


@dataclass(frozen=True, slots=True)
class Result:
    """One policy's run."""

    gap: float
    bound: float
    hit_rate: float


def measure(directory: Path, policy: str, calls: int, block: int, worker: dict[str, object]) -> Result:
    """Serve `calls` calls under `policy`; the worker itself measures the gap, while both users are backlogged."""
    directory.mkdir()
    stack = Stack(directory)
    try:
        stack.worker("w", policy=policy, **worker)
        gateway = stack.gateway(throttle="none")
        completions = asyncio.run(contend(gateway.address, calls, block))
        status = stack.status()
        member = status.cluster.members[0]
        usages = [completion.usage for completion in completions]
        return Result(
            gap=member.load.fairness_gap,
            bound=member.load.fairness_bound,
            hit_rate=sum(u.cached_tokens for u in usages) / sum(u.prompt_tokens for u in usages),
        )
    finally:
        stack.close()


async def contend(gateway: str, calls: int, block: int) -> list[Completion]:
    """Both users in closed loops until `calls` calls are done; what is then under way is cancelled."""
    done: list[Completion] = []
    enough = asyncio.Event()

    async def ask(client: Client, user: str, loop: int) -> None:
        for number in range(calls):
            prompt = f"{user:*<{PREFIX_BLOCKS * block}}{loop:03}{number:05}"
            done.append(await client.generate(list(prompt.encode()), max_tokens=OUTPUT, ignore_eos=True))
            if len(done) >= calls:
                enough.set()

    async with Client(gateway, user="flood") as flood, Client(gateway, user="meek") as meek:
        clients = {"flood": flood, "meek": meek}
        tasks = [
            asyncio.create_task(ask(clients[user], user, loop))
            for user, parallel in PARALLEL.items()
            for loop in range(parallel)
        ]
        await enough.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return done


@pytest.mark.e2e
@pytest.mark.parametrize("engine", ENGINES)
def test_the_policies_are_ordered_as_the_papers_claim(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "DEADLINE", VLLM_DEADLINE)
    block, worker = settings(engine, tmp_path / "model")
    results = {name: measure(tmp_path / name, name, CALLS[engine], block, worker) for name in ("fcfs", "vtc", "dlpm")}
    print("\n".join(f"{name:<5} {result}" for name, result in results.items()))
    bound = results["dlpm"].bound
    assert results["dlpm"].gap <= bound
    assert results["fcfs"].gap > bound
    assert results["vtc"].gap <= results["vtc"].bound
    assert results["vtc"].hit_rate < results["dlpm"].hit_rate
