"""Queue policies at any queue length: time per admitted request and per decoded token, side by side in one run.

    python -m lab.bench.local_policy [--waiting 100,1000,10000,100000] [--steps 60] [--policies dlpm,vtc]
                                 [--levels tenant,user,interaction] [--rounds 3]

Every step admits eight requests; each of them decodes eight tokens and finishes, and a new one arrives for it. Prompts
have 512 tokens. In the setting `own`, each client has its own prefix, and one in four prefixes is cached. In `shared`,
all requests wait for one prefix, which is cached and evicted in turn every five steps. With `--levels` DLPM has another
column, in which it is fair at these levels. The columns take turns in every round, and the median of the rounds is
shown.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

from lab.bench.machine import describe
from local_worker.core.accounts.tree import AccountTree, FairnessLevels
from local_worker.core.policies import QueuePolicyConfig
from local_worker.core.policies.dlpm import Dlpm
from local_worker.core.request import Request
from serving.cost import WeightedTokens
from serving.sampling_params import SamplingParams
from simulation.spec import LOCAL_POLICIES

BLOCK = 16
PROMPT_BLOCKS = 32
PREFIX_BLOCKS = 24
ADMITTED = 8
OUTPUT_TOKENS = 8
EVICTED_EVERY = 5
WARM_UP = 20
SORTING_MOST = 10_000  # requests: beyond this, a policy that sorts its queue takes minutes
CONFIG = QueuePolicyConfig(
    quantum_tokens=512,
    cost=WeightedTokens(),
    max_input_tokens=512,
    max_output_tokens=512,
    most_output_tokens=100_000,
    block_tokens=BLOCK,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The number of requests and clients, and how prompts share prefixes."""

    name: str
    waiting: int
    clients: int


class Room:
    """A step budget of eight requests, with a set of digests as its prefix cache."""

    def __init__(self, accounts: AccountTree) -> None:
        self._accounts = accounts
        self.cached: dict[int, None] = {}
        self.places = 0

    @property
    def closed(self) -> bool:
        """Whether no place is left in this step."""
        return not self.places

    def matched_tokens(self, request: Request) -> int:
        """Return the cached tokens like PrefixCache.match, continuing from the last match."""
        blocks = request.matched_blocks
        while blocks and request.digests[blocks - 1] not in self.cached:
            blocks -= 1
        while blocks < PREFIX_BLOCKS and request.digests[blocks] in self.cached:
            blocks += 1
        request.matched_blocks = blocks
        return blocks * BLOCK

    def awaits_prefix(self, request: Request) -> bool:
        """Return False: prompts are computed at once here."""
        return False

    def admit(self, request: Request) -> int | None:
        """Take one place, or return None if there is none left."""
        if not self.places:
            return None
        self.places -= 1
        self._accounts.admitted(request)
        self._accounts.planned(request)
        return request.prompt_tokens - self.matched_tokens(request)

    def reserve(self, request: Request, most: int | None = None) -> range:
        """Return an empty range: no client exceeds its share here."""
        return range(0)


class Load:
    """The arrivals of one setting, and the time spent in the policy, in nanoseconds."""

    def __init__(self, setting: Setting, policy: Any) -> None:
        self._setting = setting
        self._policy = policy
        self._room = Room(policy.accounts)
        self._arrivals = 0
        self.select_ns = self.generated_ns = self.admitted = 0

    def run(self, steps: int) -> None:
        """Fill the queue, warm up, then measure `steps` steps."""
        self._room.cached = dict.fromkeys(self._prefixes())
        for _ in range(self._setting.waiting):
            self._arrive()
        for number in range(WARM_UP):
            self._step(number)
        self.select_ns = self.generated_ns = self.admitted = 0
        for number in range(steps):
            self._step(number)

    def _prefixes(self) -> list[int]:
        if self._setting.name == "shared":
            return [self._digest(0, block) for block in range(PREFIX_BLOCKS)]
        return [self._digest(c, b) for c in range(0, self._setting.clients, 4) for b in range(PREFIX_BLOCKS)]

    def _digest(self, prefix: int, block: int) -> int:
        return prefix * PROMPT_BLOCKS + block + 1

    def _arrive(self) -> None:
        number, clients = self._arrivals, self._setting.clients
        prefix = 0 if self._setting.name == "shared" else number % clients
        digests = [self._digest(prefix, block) for block in range(PREFIX_BLOCKS)]
        digests += [-number * PROMPT_BLOCKS - block for block in range(PREFIX_BLOCKS, PROMPT_BLOCKS)]
        request = Request(
            id="",
            client=f"c{number % clients}",
            tokens=PROMPT,
            prompt_tokens=len(PROMPT),
            digests=digests,
            chain_seed=0,
            sampling=SAMPLING,
            arrival=number,
        )
        self._arrivals += 1
        self._room.matched_tokens(request)
        request.path = self._policy.accounts.path(request)
        self._policy.accounts.arrived(request)
        self._policy.arrived(request)

    def _step(self, number: int) -> None:
        if self._setting.name == "shared" and number % EVICTED_EVERY == EVICTED_EVERY - 1:
            self._turn_prefix()
        self._room.places = ADMITTED
        began = time.thread_time_ns()
        admitted = self._policy.select(self._room)
        self.select_ns += time.thread_time_ns() - began
        self.admitted += len(admitted)
        began = time.thread_time_ns()
        for request in admitted:
            for _ in range(OUTPUT_TOKENS):
                self._policy.generated(request, 1)
        self.generated_ns += time.thread_time_ns() - began
        for request in admitted:
            self._policy.accounts.finished(request)
            self._policy.finished(request)
            self._arrive()

    def _turn_prefix(self) -> None:
        if self._room.cached:
            self._room.cached.clear()
            return
        digests = self._prefixes()
        self._room.cached = dict.fromkeys(digests)
        began = time.thread_time_ns()
        self._policy.cached(digests)
        self.select_ns += time.thread_time_ns() - began


PROMPT = [0] * (PROMPT_BLOCKS * BLOCK)
SAMPLING = SamplingParams(max_tokens=OUTPUT_TOKENS)


def measure(setting: Setting, make: Callable[[], Any], steps: int) -> Load:
    """Measure one cell of the table."""
    load = Load(setting, make())
    load.run(steps)
    return load


def cells(setting: Setting, columns: Mapping[str, Callable[[], Any]], steps: int, rounds: int) -> list[str]:
    """Measure a row of the table, in rounds in which the columns take turns; return the medians as texts."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in columns}
    for _, (name, make) in product(range(rounds), columns.items()):
        if name != "lpm" or setting.waiting <= SORTING_MOST:
            load = measure(setting, make, 5 if name == "drr" and setting.waiting > SORTING_MOST else steps)
            tokens = load.admitted * OUTPUT_TOKENS
            times[name].append((load.select_ns / load.admitted / 1e3, load.generated_ns / tokens))
    return [text(measured) if measured else "-" for measured in times.values()]


def text(measured: Sequence[tuple[float, float]]) -> str:
    """Return the medians of both times as text."""
    select, generated = (median(column) for column in zip(*measured, strict=True))
    return f"{select:.1f} / {generated:.0f}"


def settings(waiting: Sequence[int]) -> list[Setting]:
    """Return settings with few and many clients, and with own and shared prefixes."""
    few = [Setting("own", count, 10) for count in waiting]
    many = [Setting("own", count, count) for count in waiting if count > 10]
    return few + many + [Setting("shared", count, 10) for count in waiting]


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.local_policy", description=__doc__)
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--waiting", type=numbers, default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--policies", type=lambda text: text.split(","), default=list(LOCAL_POLICIES))
    parser.add_argument("--levels", type=FairnessLevels.parse)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    columns: dict[str, Callable[[], Any]] = {name: partial(LOCAL_POLICIES[name], CONFIG) for name in args.policies}
    if args.levels is not None:
        columns[f"dlpm, {args.levels}"] = partial(Dlpm, replace(CONFIG, levels=args.levels))
    print(describe("cpu"))
    print("microseconds per admitted request (select) / nanoseconds per decoded token (generated)\n")
    print("| prefixes | waiting | clients | " + " | ".join(columns) + " |")
    print("|---|---|---|" + "---|" * len(columns))
    for setting in settings(args.waiting):
        texts = cells(setting, columns, args.steps, args.rounds)
        print(f"| {setting.name} | {setting.waiting:,} | {setting.clients:,} | " + " | ".join(texts) + " |", flush=True)


if __name__ == "__main__":
    main()
