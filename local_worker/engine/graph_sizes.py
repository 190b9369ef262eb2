"""The sizes of batches for which CUDA graphs are captured."""

from typing import NamedTuple

from local_worker.core.batch import Slice
from local_worker.engine.batch_inputs import lone_slice
from local_worker.engine.kv import PagedKV

DECODES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
# Tokens of mixed steps. Beyond the last one the computation takes longer than the launches that a graph saves.
MIXED = (128, 256, 384, 512, 768)


class GraphSize(NamedTuple):
    """The largest numbers of requests and of their tokens in one step."""

    requests: int
    tokens: int


def graph_sizes(requests: int, context: int) -> tuple[GraphSize, ...]:
    """Return the sizes for at most so many running `requests`: of steps that decode only, and of mixed ones.

    `context` is the model's, in tokens: a graph is captured with a request of nearly all its tokens.

    They are sorted by tokens, so that the first one that fits is the one that computes least.
    """
    most = next((size for size in DECODES if size >= requests), DECODES[-1])
    decodes = [GraphSize(size, size) for size in DECODES if size <= most]
    return (*decodes, *(GraphSize(most, tokens) for tokens in MIXED if most < tokens <= context))


def idle_slices(size: GraphSize, kv: PagedKV) -> list[Slice]:
    """Return a batch of exactly `size` that writes to the spare page alone; no request reads it."""
    longest = size.tokens - size.requests + 1
    first = lone_slice([0] * longest, 0, [kv.spare_page] * -(-longest // kv.block_tokens), samples=True)
    return [first, *[lone_slice([0], 0, [kv.spare_page], samples=True)] * (size.requests - 1)]
