"""Inside one client: least recently used against Tail-Optimized LRU (arXiv 2510.15152), on traces with prefix blocks.

    python -m lab.bench.eviction_order TRACE BLOCKS

Tail-Optimized LRU evicts first what a conversation keeps beyond the need of its next turn: if a turn may compute so
many tokens within its latency target, as many may be missing at the end of its prefix. The requests of TRACE come in
order of their arrivals, sessions without a clock one every ten seconds. BLOCKS is the size of the cache, in blocks of
512 tokens.
"""

import argparse
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

from serving.statistics import percentile
from simulation.trace_rows import TraceRow
from simulation.traces import read

BLOCK_TOKENS = 512
EXCESS = (0, 2, 4, 8, 16)  # blocks that may be missing; 0: least recently used
SESSION_SECONDS = 10.0
Chain = Sequence[Hashable]


class TailOptimizedLru:
    """A cache of `blocks` blocks that evicts first the last `excess` ones of each conversation."""

    def __init__(self, blocks: int, excess: int) -> None:
        self._blocks = blocks
        self._excess = excess
        self._cached: OrderedDict[Hashable, None] = OrderedDict()  # least recently used first
        self._tails: OrderedDict[Hashable, None] = OrderedDict()  # those that go before all others
        self._tail_of: dict[str, Chain] = {}

    def use(self, conversation: str, chain: Chain) -> int:
        """Serve a prompt; return the number of its blocks that were not cached."""
        found = next((index for index, block in enumerate(chain) if block not in self._cached), len(chain))
        for block in (*self._tail_of.get(conversation, ()), *chain):
            self._tails.pop(block, None)
        for block in reversed(chain):
            self._cached[block] = None
            self._cached.move_to_end(block)
        while len(self._cached) > self._blocks:
            block = next(iter(self._tails or self._cached))
            self._tails.pop(block, None)
            del self._cached[block]
        tail = self._tail_of[conversation] = chain[len(chain) - self._excess :] if self._excess else ()
        self._tails.update(dict.fromkeys(block for block in reversed(tail) if block in self._cached))
        return len(chain) - found


def chain_of(row: TraceRow) -> Chain:
    """Return the blocks of a prompt, in steps of BLOCK_TOKENS: each stands for all before it."""
    ids = [(scope, block) for scope, blocks in row.blocks for block in blocks]
    each = max(1, BLOCK_TOKENS // row.block_tokens)
    return ids[each - 1 :: each]


def prompts(rows: Sequence[TraceRow]) -> Iterator[tuple[str, Chain]]:
    """Iterate over conversations and their prompts, in order of time."""
    begins: dict[str, float] = {}
    for row in rows:
        begins.setdefault(row.interaction, 0.0 if row.timed else len(begins) * SESSION_SECONDS)
    for row in sorted(rows, key=lambda row: begins[row.interaction] + row.arrival):
        if row.blocks:
            yield row.interaction, chain_of(row)


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.eviction_order", description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("blocks", type=int)
    options = parser.parse_args()
    found = list(prompts(read(options.trace).rows))
    total = sum(len(chain) for _, chain in found)
    print("| tokens that may be missing | hit rate | computed tokens p50 / p90 / p99 |\n|---|---|---|")
    for excess in EXCESS:
        cache = TailOptimizedLru(options.blocks, excess)
        missed = [cache.use(conversation, chain) for conversation, chain in found if len(chain) <= options.blocks]
        computed = " / ".join(f"{percentile(missed, each) * BLOCK_TOKENS:,.0f}" for each in (50, 90, 99))
        print(f"| {excess * BLOCK_TOKENS:,} | {1 - sum(missed) / total:.3f} | {computed} |", flush=True)


if __name__ == "__main__":
    main()
