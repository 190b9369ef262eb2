"""DLPM against VTC and LPM in the time of a real device: one engine, driven by the worker's batcher (DLPM, Figures 1
and 11).

    python -m bench.device_policies --device cuda --dtype bfloat16 --model random:llama-3.1-8b
    python -m bench.device_policies --model random:tiny --seconds 3 --clients 2,4

Every client sends prompts that begin with a prefix of its own and always has requests waiting; the first client has
four times as many as the others. Each policy runs for the same time with an empty cache. The table shows the service
per second (1 per input token, 2 per output token, cached ones included, as the paper counts), Jain's index over the
clients' service, the hit rate, and the largest gap that the batcher observed beside the policy's bound.
"""

import argparse
import itertools
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from bench.engine import load
from bench.machine import describe
from bench.shapes import RANDOM, SHAPES
from fairlead.token_ids import pack_ids
from local_worker.core.batch import Engine, PendingStep
from local_worker.core.batcher import Batcher
from local_worker.core.limits import BatchLimits
from local_worker.core.plan import Plan
from local_worker.core.policies import QueuePolicyConfig
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from local_worker.engine.runner import EngineOptions, TransformersEngine
from serving.blocks import chain, unpack_digests
from serving.cost import MICRO, WeightedTokens
from serving.model_name import BUILT_IN
from serving.sampling_params import SamplingParams
from serving.statistics import jain_index
from simulation.spec import LOCAL_POLICIES

POLICIES = ("dlpm", "vtc", "lpm")
BLOCK = 16
PREFIX, QUESTION, ANSWER = 512, 64, 32  # tokens
MAX_RUNNING = 64
OPEN, OPEN_OF_FIRST = MAX_RUNNING, 4 * MAX_RUNNING  # requests: every client always has some waiting
TOKEN_BUDGET = 2048
OUTPUT_COST = 2  # of a token, where one of the input costs 1
CHAIN_SEED = 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that a run depends on: the vocabulary, and the KV cache and the quantum in tokens and cost units."""

    vocabulary: int
    kv_tokens: int
    quantum: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one policy; service in cost units."""

    services: tuple[float, ...]
    seconds: float
    hit_rate: float
    gap: float
    bound: float | None

    @property
    def rate(self) -> float:
        """Return the service of all clients per second."""
        return sum(self.services) / self.seconds

    @property
    def jain(self) -> float:
        """Return Jain's index over the clients' service."""
        return jain_index(self.services)


def measure(engine: Engine, policy: str, clients: int, sizes: Sizes, until: Callable[[float], bool]) -> Measured:
    """Serve the clients under a policy until `until` returns True for the seconds that have passed."""
    batcher = _batcher(policy, sizes)
    arrivals = itertools.count()
    arriving = [_requests(client, arrivals, sizes.vocabulary) for client in range(clients)]
    for client, requests in enumerate(arriving):
        for _ in range(OPEN if client else OPEN_OF_FIRST):
            batcher.submit(next(requests), 0.0)
    served, prompts, cached = Counter[int](), 0, 0
    steps: deque[tuple[Plan, PendingStep]] = deque()
    began, now = time.perf_counter(), 0.0
    while not until(now) or steps:
        plan = None if until(now) else batcher.plan(now)
        if plan is not None:
            steps.append((plan, engine.launch(plan.batch)))
        if len(steps) > (engine.ahead if plan is not None else 0):
            done, pending = steps.popleft()
            for advance in batcher.commit(done, pending.wait()):
                request, client = advance.request, int(advance.request.client)
                served[client] += OUTPUT_COST * len(advance.tokens)
                if request.output_tokens == len(advance.tokens):  # its first
                    served[client] += request.prompt_tokens
                    prompts, cached = prompts + request.prompt_tokens, cached + request.cached
                if advance.finish is not None:
                    batcher.submit(next(arriving[client]), now)
        now = time.perf_counter() - began
    batcher.check_invariants()
    bound = batcher.policy.bound_micro
    return Measured(
        services=tuple(float(served[client]) for client in range(clients)),
        seconds=now,
        hit_rate=cached / prompts,
        gap=batcher.fairness_gap / MICRO,
        bound=None if bound is None else bound / MICRO,
    )


def _batcher(policy: str, sizes: Sizes) -> Batcher:
    cost = WeightedTokens()
    config = QueuePolicyConfig(
        quantum_tokens=sizes.quantum,
        cost=cost,
        max_input_tokens=PREFIX + QUESTION,
        max_output_tokens=ANSWER,
        most_output_tokens=sizes.kv_tokens,
        block_tokens=BLOCK,
    )
    waiting = 1 << 20
    limits = BatchLimits(
        max_running=MAX_RUNNING,
        token_budget=TOKEN_BUDGET,
        max_prompt_tokens=PREFIX + QUESTION,
        max_waiting=waiting,
        max_waiting_per_client=waiting,
    )
    return Batcher(LOCAL_POLICIES[policy](config), PrefixCache(sizes.kv_tokens // BLOCK, BLOCK), cost, limits, ())


def _requests(client: int, arrivals: Iterator[int], vocabulary: int) -> Iterator[Request]:
    """Yield the requests of a client, each with the next number of arrival."""
    dice = random.Random(client)
    prefix = [dice.randrange(vocabulary) for _ in range(PREFIX)]
    for arrival in arrivals:
        prompt = prefix + [dice.randrange(vocabulary) for _ in range(QUESTION)]
        yield Request(
            id=str(arrival),
            client=str(client),
            tokens=prompt,
            prompt_tokens=len(prompt),
            digests=list(unpack_digests(chain(pack_ids(prompt), BLOCK, CHAIN_SEED))),
            chain_seed=CHAIN_SEED,
            sampling=SamplingParams(max_tokens=ANSWER, ignore_eos=True),
            arrival=arrival,
        )


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m bench.device_policies", description=__doc__)
    shapes = ", ".join(RANDOM + name for name in SHAPES)
    parser.add_argument("--model", default=BUILT_IN, help=f"name, path or hub id; random weights: {shapes}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--clients", type=lambda text: [int(part) for part in text.split(",")], default=[5, 10, 20, 50])
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="duration in seconds for each policy and number of clients"
    )
    parser.add_argument("--kv-tokens", type=int, default=16_384)
    parser.add_argument("--quantum", type=int, default=2048, help="Q^u in cost units")
    args = parser.parse_args()
    model = load(args.model, args.device, getattr(torch, args.dtype))
    options = EngineOptions(block_tokens=BLOCK, kv_tokens=args.kv_tokens, max_running=MAX_RUNNING)
    engine = TransformersEngine(model, options)
    sizes = Sizes(engine.vocab_size, args.kv_tokens, args.quantum)
    measure(engine, "dlpm", 2, sizes, lambda now: now > args.seconds / 10)  # warm up
    print(describe(args.device))
    print(f"model {args.model}, {args.dtype}, {args.kv_tokens:,} KV tokens, Q^u {args.quantum:,}\n")
    print("| clients | policy | service/s | Jain's index | hit rate | gap | bound |")
    print("|---|---|---|---|---|---|---|")
    for clients in args.clients:
        for policy in POLICIES:
            row = measure(engine, policy, clients, sizes, lambda now: now > args.seconds)
            bound = "-" if row.bound is None else f"{row.bound:,.0f}"
            cells = f"{row.rate:,.0f} | {row.jain:.3f} | {row.hit_rate:.2f} | {row.gap:,.0f} | {bound}"
            print(f"| {clients} | {policy} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
