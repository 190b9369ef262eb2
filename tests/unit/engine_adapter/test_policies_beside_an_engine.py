"""The policies over an engine that is not ours and serves in order of arrival: a flooder and a user with few calls."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead import Client, Usage
from tests.fakes.served_engine.process import EngineProcess
from tests.services import Stack

pytest.importorskip("zmq", reason="the extra `adapter` is not installed")
PREFIX_BLOCKS, BLOCK = 10, 16
TAIL, OUTPUT = 8, 8
PARALLEL = {"flood": 32, "meek": 8}
CALLS = 160


@dataclass(frozen=True, slots=True)
class Result:
    """What the adapter has measured under one policy, and how many of each user's calls were served."""

    gap: float
    bound: float
    hit_rate: float
    calls: dict[str, int]


def measure(directory: Path, policy: str) -> Result:
    """Serve CALLS calls under `policy`."""
    directory.mkdir()
    engine = EngineProcess(
        directory / "engine.log", block=BLOCK, blocks=2 * PREFIX_BLOCKS, max_num_seqs=3, budget=64, step_seconds=0.012
    )
    stack = Stack(directory)
    try:
        stack.adapter(
            "w",
            engine=engine.address,
            kv_events=f"{engine.events},{engine.replay}",
            policy=policy,
            max_running=3,
            token_budget=64,
            max_prompt_tokens=PREFIX_BLOCKS * BLOCK + TAIL,
            quantum_tokens=64,  # so that the gap is far below that of FCFS, also where processes stall
        )
        gateway = stack.gateway(throttle="none")
        usages = asyncio.run(contend(gateway.address))
        load = stack.status().cluster.members[0].load
        every = [usage for each in usages.values() for usage in each]
        hit_rate = sum(usage.cached_tokens for usage in every) / sum(usage.prompt_tokens for usage in every)
        calls = {user: len(found) for user, found in usages.items()}
        return Result(load.fairness_gap, load.fairness_bound, hit_rate, calls)
    finally:
        stack.close()
        engine.kill()


async def contend(gateway: str) -> dict[str, list[Usage]]:
    """Both users in closed loops until CALLS calls are done; each user's prompts share a prefix."""
    usages: dict[str, list[Usage]] = {user: [] for user in PARALLEL}
    enough = asyncio.Event()

    async def ask(client: Client, user: str, loop: int) -> None:
        for number in range(CALLS):
            prompt = f"{user:*<{PREFIX_BLOCKS * BLOCK}}{loop:03}{number:05}"
            usages[user].append((await client.generate(prompt, max_tokens=OUTPUT, ignore_eos=True)).usage)
            if sum(map(len, usages.values())) >= CALLS:
                enough.set()

    async with Client(gateway, user="flood") as flood, Client(gateway, user="meek") as meek:
        clients = {"flood": flood, "meek": meek}
        pairs = [(user, loop) for user, parallel in PARALLEL.items() for loop in range(parallel)]
        tasks = [asyncio.create_task(ask(clients[user], user, loop)) for user, loop in pairs]
        await enough.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return usages


@pytest.mark.e2e
def test_the_adapters_policy_decides_and_not_the_engines_order(tmp_path: Path) -> None:
    results = {policy: measure(tmp_path / policy, policy) for policy in ("fcfs", "dlpm")}
    print("\n".join(f"{policy:<5} {result}" for policy, result in results.items()))
    fcfs, dlpm = results["fcfs"], results["dlpm"]
    assert 0 < dlpm.gap <= dlpm.bound
    assert fcfs.gap > 2 * dlpm.gap
    assert dlpm.hit_rate > 0.3
