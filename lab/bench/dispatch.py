"""One dispatch decision: microseconds and memory for every policy, beside the paper's design in the same run.

    python -m lab.bench.dispatch [--blocks 10000,1000000] [--workers 8,64,1024] [--queued 0] [--rounds 300]
                             [--prompts 128,2048,21000] [--policies doubleq,least-delay] [--percentile 50]

The index is full of conversations of equal length, spread over the workers. They share a system prompt of 64 tokens and
belong to 100 clients. With `--queued` each worker has so many requests of these clients all the time. One turn is timed
with all its work: match, choose, book and insert for a prompt that continues the conversation, the worker's report that
it has the prompt, the generated blocks, the end, and the eviction of as many blocks elsewhere as were added. The
reference does the same work by DLPM Algorithm 2 as printed: one radix tree over tokens per worker, matched one by one,
with deficits and queue sizes in lists (lab/bench/token_trees.py). It is measured only at sizes at which its trees fit
into memory, without queued requests.
On a machine that does other work a low percentile is nearer to an idle core's median.
"""

import argparse
import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Fleet, WorkerIdentity
from global_scheduler.core.policies import RoutePolicyConfig, RouteRequest
from lab.bench.machine import commit, processor
from lab.bench.token_trees import TokenTrees
from serving.blocks import BlockRun, pack_digests, unpack_digests
from serving.cost import WeightedTokens
from simulation.spec import GLOBAL_POLICIES

BLOCK = 16
SYSTEM = 4  # blocks
HALF_TURN = 2  # blocks that a turn adds to the prompt, and also that it generates
CLIENTS = 100
QUANTUM = 40_000
REFERENCE_MOST = 100_000
BUDGETS = {128: 15, 2048: 40, 21_000: 90}  # microseconds by prompt


class Took(NamedTuple):
    """Nanoseconds of CPU: `decision` is match, choice, booking, insert and evict; `turn` adds the worker's later
    reports."""

    decision: int
    turn: int


@dataclass(slots=True)
class Conversation:
    """The conversation so far, as packed digests or, for the reference, as tokens."""

    client: str
    worker: int
    digests: bytes
    tokens: tuple[int, ...]


class Text:
    """A source of random content, equal for equal seeds; it makes tokens only for the reference."""

    def __init__(self, wants_tokens: bool) -> None:
        self._random = random.Random(1)
        self._wants_tokens = wants_tokens
        self._system = self.more(SYSTEM)

    def more(self, blocks: int) -> tuple[bytes, tuple[int, ...]]:
        """Return digests and tokens of this many new blocks."""
        count = blocks * BLOCK if self._wants_tokens else 0
        return self._random.randbytes(8 * blocks), tuple(self._random.randrange(1 << 17) for _ in range(count))

    def conversations(self, count: int, blocks: int, workers: int) -> list[Conversation]:
        """Return `count` conversations of `blocks` blocks each."""
        made = []
        for number in range(count):
            digests, tokens = self.more(blocks - SYSTEM)
            digests, tokens = self._system[0] + digests, self._system[1] + tokens
            made.append(Conversation(f"client {number % CLIENTS}", number % workers, digests, tokens))
        return made


class Fairlead:
    """The scheduler's core under one policy."""

    def __init__(self, policy: str, workers: int, most_blocks: int) -> None:
        made = GLOBAL_POLICIES[policy](RoutePolicyConfig(QUANTUM, WeightedTokens()))
        self._dispatcher = Dispatcher(made, BlockIndex(most_blocks), Fleet(1e9))
        names = [f"w{number}" for number in range(workers)]
        identities = [WorkerIdentity(name, "1", f"{name}:1", {"m": ""}, BLOCK, 1 << 20, 32) for name in names]
        self._members = [self._dispatcher.attached(identity, (), 0.0) for identity in identities]
        self._requests = 0

    def fill(self, talk: Conversation) -> None:
        """Insert the conversation as a worker's snapshot does."""
        self._dispatcher.progressed(self._members[talk.worker], [BlockRun(0, talk.digests)], b"")

    def queue(self, requests: int) -> None:
        """Book so many requests at every worker, each of a client drawn at random."""
        rng = random.Random(2)
        for member in self._members:
            for _ in range(requests):
                self._requests += 1
                client = f"client {rng.randrange(CLIENTS)}"
                request = RouteRequest(str(self._requests), 1, client, "m", b"", rng.randrange(1, 4096), 1000)
                self._dispatcher.accepted(member, request, 0.0)

    def turn(self, talk: Conversation, victim: Conversation, text: Text) -> Took:
        """Run one turn of `talk`, and evict as many blocks of `victim`."""
        talk.digests += text.more(HALF_TURN)[0]
        output = text.more(HALF_TURN)[0]
        self._requests += 1
        name, tokens = str(self._requests), len(talk.digests) // 8 * BLOCK
        run = BlockRun(unpack_digests(talk.digests[-8:])[0], output)
        evicted = pack_digests(unpack_digests(victim.digests)[: -2 * HALF_TURN - 1 : -1])
        dispatcher = self._dispatcher
        began = time.thread_time_ns()
        request = RouteRequest(name, 1, talk.client, "m", talk.digests, tokens, 1000)
        assignment = dispatcher.dispatch(request, 0.0)
        assert assignment is not None
        dispatcher.progressed(self._members[victim.worker], (), evicted)
        decided = time.thread_time_ns()
        dispatcher.accepted(assignment.member, request, 0.0)
        dispatcher.progressed(assignment.member, [run], b"")
        dispatcher.ended(assignment.member, name, 1, True, HALF_TURN * BLOCK)
        took = Took(decided - began, time.thread_time_ns() - began)
        talk.worker = assignment.member.slot
        talk.digests += output
        victim.digests = victim.digests[: -8 * 2 * HALF_TURN]
        return took


class Paper:
    """The reference: Algorithm 2 with one radix tree per worker."""

    def __init__(self, workers: int) -> None:
        self._trees = TokenTrees(workers)
        self._sizes = [0] * workers
        self._deficits = {f"client {number}": [0] * workers for number in range(CLIENTS)}

    def fill(self, talk: Conversation) -> None:
        """Insert the same content as Fairlead.fill does."""
        self._trees.trees[talk.worker].insert(talk.tokens)

    def turn(self, talk: Conversation, victim: Conversation, text: Text) -> Took:
        """Run the same turn as Fairlead.turn does."""
        talk.tokens += text.more(HALF_TURN)[1]
        output = text.more(HALF_TURN)[1]
        began = time.thread_time_ns()
        longest = self._trees.longest(talk.tokens)
        q = self._deficits[talk.client]
        while not any(balance > 0 for balance in q):
            q[:] = [balance + QUANTUM for balance in q]
        available = [worker for worker, balance in enumerate(q) if balance > 0]
        sticky = [worker for worker in longest if q[worker] > 0]
        chosen = min(sticky or available, key=lambda worker: (self._sizes[worker], worker))
        q[chosen] -= len(talk.tokens)
        self._sizes[chosen] += 1
        self._trees.trees[chosen].insert(talk.tokens)
        self._trees.trees[victim.worker].evict(victim.tokens, 2 * HALF_TURN * BLOCK)
        decided = time.thread_time_ns()
        talk.tokens += output
        self._trees.trees[chosen].insert(talk.tokens)
        q[chosen] -= 2 * len(output)
        self._sizes[chosen] -= 1
        took = Took(decided - began, time.thread_time_ns() - began)
        talk.worker = chosen
        victim.tokens = victim.tokens[: -2 * HALF_TURN * BLOCK]
        return took


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: `prompt` in tokens, `indexed` in blocks, `queued` in requests per worker."""

    prompt: int
    workers: int
    indexed: int
    queued: int
    rounds: int
    policies: Sequence[str]
    percentile: int

    def talks(self, text: Text) -> list[Conversation]:
        """Return as many conversations as fill the index."""
        blocks = self.prompt // BLOCK
        return text.conversations(max(4, self.indexed // blocks), blocks, self.workers)

    def times(self, made: Fairlead | Paper, wants_tokens: bool) -> list[Took]:
        """Return the times of each turn after the warm-up."""
        text = Text(wants_tokens)
        talks = self.talks(text)
        for talk in talks:
            made.fill(talk)
        gc.collect()
        gc.freeze()
        half, times, warm_up = len(talks) // 2, [], self.rounds // 5
        for number in range(warm_up + self.rounds):
            talk, victim = talks[number % half], talks[half + number % half]
            if number // half % 2:  # conversations that grew now shrink
                talk, victim = victim, talk
            times.append(made.turn(talk, victim, text))
        gc.unfreeze()
        return times[warm_up:]

    def index_bytes(self) -> float:
        """Measure the index's memory in bytes per block."""
        talks, index = self.talks(Text(False)), BlockIndex(2 * self.indexed)
        gc.collect()
        tracemalloc.start()
        for talk in talks:
            # A copy, because a received message is one, too.
            index.cached(talk.worker, [BlockRun(0, bytes(bytearray(talk.digests)))])
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return used / len(index)

    def tree_bytes(self) -> float:
        """Measure the reference's memory in bytes per block, including its tokens."""
        talks, trees = self.talks(Text(True)), TokenTrees(self.workers)
        blocks = sum(len(talk.digests) // 8 for talk in talks)
        gc.collect()
        tracemalloc.start()
        for talk in talks:
            trees.trees[talk.worker].insert(tuple(token + 0 for token in talk.tokens))
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return used / blocks


def percentile(nanoseconds: Iterable[int], share: int) -> float:
    """Return the percentile `share` in microseconds."""
    return statistics.quantiles(nanoseconds, n=100, method="inclusive")[share - 1] / 1e3


def cell(times: list[Took], share: int) -> str:
    """Format the percentile `share` of the times of decisions / of whole turns, in microseconds."""
    decision, turn = (percentile(column, share) for column in zip(*times, strict=True))
    return f"{decision:.1f} / {turn:.1f}"


def decided(times: list[Took], setting: Setting) -> float:
    """Return the setting's percentile of the times of decisions in microseconds."""
    return percentile((took.decision for took in times), setting.percentile)


def row(setting: Setting) -> list[str]:
    """Measure every policy, and the reference where it fits."""
    cells = [f"{setting.prompt:,}", f"{setting.workers:,}", f"{setting.indexed:,}", f"{setting.queued:,}"]
    doubleq = None
    for name in setting.policies:
        made = Fairlead(name, setting.workers, 2 * setting.indexed)
        made.queue(setting.queued)
        times = setting.times(made, wants_tokens=False)
        if name == "doubleq":
            doubleq = decided(times, setting)
        cells.append(cell(times, setting.percentile))
    if setting.indexed <= REFERENCE_MOST and not setting.queued:
        times = setting.times(Paper(setting.workers), wants_tokens=True)
        ratio = "-" if doubleq is None else f"{decided(times, setting) / doubleq:.1f}"
        cells += [cell(times, setting.percentile), ratio, f"{setting.index_bytes():.1f}", f"{setting.tree_bytes():.0f}"]
    else:
        cells += ["-", "-", f"{setting.index_bytes():.1f}", "-"]
    return [*cells, f"{BUDGETS.get(setting.prompt, '-')}"]


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.dispatch", description=__doc__)
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--blocks", type=numbers, default=[10_000, 1_000_000])
    parser.add_argument("--workers", type=numbers, default=[8, 64, 1024])
    parser.add_argument("--queued", type=numbers, default=[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--prompts", type=numbers, default=list(BUDGETS))
    parser.add_argument("--policies", type=lambda text: text.split(","), default=list(GLOBAL_POLICIES))
    parser.add_argument("--percentile", type=int, choices=range(1, 100), metavar="1..99", default=50)
    args = parser.parse_args()
    print(f"{processor()}; commit {commit()}")
    print(f"microseconds of CPU, percentile {args.percentile}: a decision / with the worker's later reports\n")
    titles = ["tokens", "workers", "blocks", "queued", *args.policies, "paper's design", "times doubleq"]
    titles += ["bytes per block", "paper's", "budget"]
    print("| " + " | ".join(titles) + " |")
    print("|---" * len(titles) + "|")
    for indexed, prompt, workers, queued in product(args.blocks, args.prompts, args.workers, args.queued):
        setting = Setting(prompt, workers, indexed, queued, args.rounds, args.policies, args.percentile)
        print("| " + " | ".join(row(setting)) + " |", flush=True)


if __name__ == "__main__":
    main()
