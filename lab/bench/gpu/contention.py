"""Clients that always have requests waiting, served by one engine under a queue policy in the time that its device
takes (DLPM, Figures 1 and 11).

Every client sends prompts that begin with a prefix of its own; the first client has four times as many requests as the
others.
"""

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.token_ids import pack_ids
from lab.bench.batcher import BLOCK, steps
from local_worker.core.batch import Engine
from local_worker.core.batcher import Batcher
from local_worker.core.limits import BatchLimits
from local_worker.core.policies import QueuePolicyConfig
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from serving.blocks import chain, unpack_digests
from serving.cost import MICRO, WeightedTokens
from serving.sampling_params import SamplingParams
from serving.statistics import jain_index
from simulation.spec import LOCAL_POLICIES

PREFIX, QUESTION, ANSWER = 512, 64, 32  # tokens
MAX_RUNNING = 64
OPEN, OPEN_OF_FIRST = MAX_RUNNING, 4 * MAX_RUNNING  # requests: every client always has some waiting
OUTPUT_COST = 2  # of a token, where one of the input costs 1
CHAIN_SEED = 1


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue policy and its sizes: Q^u in cost units; the KV cache, a step's budget and the longest prompt in
    tokens."""

    policy: str
    quantum: int
    kv_tokens: int
    token_budget: int = 2048
    max_prompt: int = PREFIX + QUESTION
    max_output: int = ANSWER

    def batcher(self) -> Batcher:
        """Make a worker's batcher with this queue and an empty cache."""
        cost = WeightedTokens()
        config = QueuePolicyConfig(
            quantum_tokens=self.quantum,
            cost=cost,
            max_input_tokens=self.max_prompt,
            max_output_tokens=self.max_output,
            most_output_tokens=self.kv_tokens,
            block_tokens=BLOCK,
        )
        waiting = 1 << 20
        limits = BatchLimits(
            max_running=MAX_RUNNING,
            token_budget=self.token_budget,
            max_prompt_tokens=self.max_prompt,
            max_waiting=waiting,
            max_waiting_per_client=waiting,
        )
        cache = PrefixCache(self.kv_tokens // BLOCK, BLOCK)
        return Batcher(RequestQueue(LOCAL_POLICIES[self.policy](config), cache, cost, limits), ())


@dataclass(frozen=True, slots=True)
class Contended:
    """The results of a queue: each client's service, the gap and its bound in cost units (1 per input token, 2 per
    output token, cached ones included, as the paper counts)."""

    services: tuple[float, ...]
    seconds: float
    steps: int
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


def contend(engine: Engine, queue: Queue, clients: int, vocabulary: int, seconds: float) -> Contended:
    """Serve the clients for so many seconds."""
    batcher, arrivals = queue.batcher(), itertools.count()
    arriving = [_requests(client, arrivals, vocabulary) for client in range(clients)]
    for client, requests in enumerate(arriving):
        for _ in range(OPEN if client else OPEN_OF_FIRST):
            batcher.queue.submit(next(requests), 0.0)
    served, count, prompts, cached = Counter[int](), 0, 0, 0
    began, now = time.perf_counter(), 0.0
    for advances in steps(engine, batcher, lambda: time.perf_counter() - began):
        now, count = time.perf_counter() - began, count + 1
        for advance in advances:
            request, client = advance.request, int(advance.request.client)
            served[client] += OUTPUT_COST * len(advance.tokens)
            if request.output_tokens == len(advance.tokens):  # its first
                served[client] += request.prompt_tokens
                prompts, cached = prompts + request.prompt_tokens, cached + request.cached
            if advance.finish is not None:
                batcher.queue.submit(next(arriving[client]), now)
        if now > seconds:
            break
    batcher.check_invariants()
    bound = batcher.queue.policy.bound_micro
    return Contended(
        services=tuple(float(served[client]) for client in range(clients)),
        seconds=now,
        steps=count,
        hit_rate=cached / max(prompts, 1),
        gap=batcher.queue.ledger.worst_gap / MICRO,
        bound=None if bound is None else bound / MICRO,
    )


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
