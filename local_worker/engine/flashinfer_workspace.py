"""How much memory FlashInfer's kernels need for the parts of an attention that they compute separately.

The prefill kernels split the context of a request among the processors of the device, and merge the parts. The formulas
are those of `PrefillPlan` in FlashInfer 0.6 (include/flashinfer/attention/scheduler.cuh) for devices since Ampere. The
planner raises an error where the buffer is smaller.
"""

from collections.abc import Iterable, Sequence

from local_worker.engine.graph_sizes import GraphSize
from local_worker.engine.kv import LayerShape

BLOCKS = 2  # blocks of threads that the planner gives each processor
LONGEST = 65  # queries from which on a tile does not grow
ELEMENT_BYTES = 4  # of a part's values and of its sum
ALIGNMENT = 16


def workspace_bytes(shapes: Iterable[LayerShape], processors: int, graphs: Sequence[GraphSize]) -> int:
    """Return the bytes that suffice on a device with so many `processors` for every batch, and for the `graphs`."""
    return max(
        needed
        for shape in frozenset(shapes)
        for needed in (_of_any_batch(shape, processors), *(_of_graph(shape, processors, size) for size in graphs))
    )


def _of_any_batch(shape: LayerShape, processors: int) -> int:
    return _bytes(shape, _tile(shape, LONGEST), _most_parts(shape, processors))


def _of_graph(shape: LayerShape, processors: int, size: GraphSize) -> int:
    """A graph reserves memory for as many tiles of queries as a batch of its size can have."""
    group = shape.query_heads // shape.heads
    tile = _tile(shape, (size.tokens - size.requests + 1) * group)
    tiles = -(-size.tokens * group // tile) + size.requests - 1
    return _bytes(shape, tile, max(tiles, _most_parts(shape, processors)))


def _most_parts(shape: LayerShape, processors: int) -> int:
    return BLOCKS * processors // shape.heads


def _tile(shape: LayerShape, queries: int) -> int:
    """Return the queries of one tile; query heads that share a key head count as queries of one head."""
    if queries <= 16:
        return 16
    return 128 if queries >= LONGEST and shape.value_size < 256 else 64


def _bytes(shape: LayerShape, tile: int, parts: int) -> int:
    return shape.query_heads * parts * tile * (shape.value_size + 1) * ELEMENT_BYTES + ALIGNMENT
