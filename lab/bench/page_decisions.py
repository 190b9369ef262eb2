"""What a worker's decisions cost with many interactions and a full KV cache of many blocks.

    python -m lab.bench.page_decisions

Interactions of users of tenants call in closed loops; a call repeats the blocks of the call before and adds some. The
driver executes nothing: a row is the processor time of submissions, plans and commits per request. The cache evicts
fairly, or what was used longest ago. Both are measured in turns, with the garbage collector of a service, and the
median of the rounds counts.
"""

import gc
import time
from dataclasses import replace
from random import Random
from statistics import median

from lab.bench.fair_slices.driven import commit, request_of
from local_worker.core.batcher import Batcher
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from serving.process import YOUNG_OBJECTS
from simulation.spec import SERVED

INTERACTIONS = 10_000
BLOCKS = 100_000
BLOCK_TOKENS = 16
TENANTS = 20
USERS = 50  # of each tenant
KEPT = 8  # blocks with which an interaction begins
ADDED = 4  # blocks that a call adds to the prompt of the call before
MOST_BLOCKS = 32  # of a prompt, after which the interaction begins anew
WARM = 24_000  # requests before the measurement, which fill the cache
ROUNDS = 48
MEASURED = 1000  # requests of a round, so long that a round contains the report of who pays for the pages


class Loop:
    """Closed loops over a batcher: each interaction has a call open at any time."""

    def __init__(self, strict_paper: bool) -> None:
        spec = replace(SERVED, kv_tokens=BLOCKS * BLOCK_TOKENS, block_tokens=BLOCK_TOKENS)
        spec = replace(spec, fairness_levels="tenant,user,interaction")
        self.cache = PrefixCache(BLOCKS, BLOCK_TOKENS, strict_paper)
        queue = RequestQueue(spec.make_policy(), self.cache, spec.make_cost(), spec.limits)
        self._batcher = Batcher(queue, ())
        self._random = Random(1)
        self._prompts = {each: self._tokens(KEPT) for each in range(INTERACTIONS)}
        self._arrivals = 0
        self.seconds = 0.0  # of processor time for decisions
        for interaction in range(INTERACTIONS):
            self._submit(interaction)

    def _tokens(self, blocks: int) -> list[int]:
        return [self._random.randrange(1000, 30_000) for _ in range(blocks * BLOCK_TOKENS)]

    def run(self, requests: int) -> float:
        """Serve `requests` more; return the processor time of each in seconds."""
        before, served = self.seconds, 0
        while served < requests:
            began = time.process_time()
            plan = self._batcher.plan(self._arrivals / 1000)
            self.seconds += time.process_time() - began
            assert plan is not None, "somebody waits"
            ended = [request for request in plan.requests if request.due >= len(request.tokens)]
            began = time.process_time()
            commit(self._batcher, plan)
            self.seconds += time.process_time() - began
            for request in ended:
                if request not in self._batcher.queue.running:
                    served += 1
                    self._submit(int(request.interaction))
        return (self.seconds - before) / served

    def _submit(self, interaction: int) -> None:
        before = self._prompts[interaction]
        kept = before if len(before) < MOST_BLOCKS * BLOCK_TOKENS else before[: KEPT * BLOCK_TOKENS]
        prompt = self._prompts[interaction] = kept + self._tokens(ADDED)
        tenant, user = interaction % TENANTS, interaction % (TENANTS * USERS)
        request = request_of(f"t{tenant}/u{user}", prompt, 1, self._arrivals, BLOCK_TOKENS)
        request.interaction = str(interaction)
        self._arrivals += 1
        began = time.process_time()
        self._batcher.queue.submit(request, self._arrivals / 1000)
        self.seconds += time.process_time() - began


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    loops = {"used longest ago": Loop(strict_paper=True), "fair": Loop(strict_paper=False)}
    for loop in loops.values():
        loop.run(WARM)
        _, evicted = loop.cache.changes.take_events()
        assert evicted, "the cache is full"
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    rounds = [{name: loop.run(MEASURED) for name, loop in loops.items()} for _ in range(ROUNDS)]
    for name in loops:
        print(f"| {name} | {median(each[name] for each in rounds) * 1e6:,.0f} us per request |")
    print(f"| fair / used longest ago | {median(each['fair'] / each['used longest ago'] for each in rounds):.2f} |")


if __name__ == "__main__":
    main()
