"""CUDA graphs of small steps. In small batches, launching the kernels one by one takes longer than their work."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from local_worker.core.batch import Slice
from local_worker.engine.attention import PagedAttention
from local_worker.engine.batch_inputs import BatchInputs
from local_worker.engine.flashinfer import FlashInfer, FlashInferGraph
from local_worker.engine.graph_sizes import GraphSize, idle_slices
from local_worker.engine.kv import PagedKV

WARM_UPS = 2

Forward = Callable[[BatchInputs], torch.Tensor]  # returns logits [rows, vocabulary]


class StepGraph:
    """The forward pass of a batch of at most `size`, captured once and replayed on new inputs."""

    def __init__(
        self,
        forward: Forward,
        attention: PagedAttention,
        kv: PagedKV,
        backend: FlashInferGraph,
        size: GraphSize,
        pool: Any,
    ) -> None:
        self._kv = kv
        self._backend = backend
        slices = idle_slices(size, kv)
        self._inputs = BatchInputs(slices, kv)
        self._graph = torch.cuda.CUDAGraph()
        with attention.using(backend):
            attention.plan(slices, self._inputs.slots)
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    forward(self._inputs)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(self._graph, pool=pool):
                self._logits = forward(self._inputs)

    def replay(self, slices: Sequence[Slice], sampled: torch.Tensor) -> torch.Tensor:
        """Compute the logits of the slices that sample; they are valid until the next replay of any graph."""
        inputs = BatchInputs(slices, self._kv)
        inputs.complete(sampled)
        self._inputs.overwrite(inputs, self._kv.spare_slot)
        self._backend.plan(inputs.slices)
        self._graph.replay()
        return self._logits[: len(inputs.rows)]


class StepGraphs:
    """One graph for each of `sizes`, of which the first that holds a batch computes it; a request has at most `pages`
    pages.

    All graphs are captured at the start, so that a failed capture shows at once and no request waits for one.
    """

    def __init__(
        self,
        forward: Forward,
        attention: PagedAttention,
        kv: PagedKV,
        backend: FlashInfer,
        sizes: Sequence[GraphSize],
        pages: int,
    ) -> None:
        pool = torch.cuda.graph_pool_handle()
        # Graphs run one after another and share their memory. The largest is captured first: the others fit in its
        # memory.
        self._graphs = {
            size: StepGraph(forward, attention, kv, FlashInferGraph(backend, kv, size, pages), size, pool)
            for size in reversed(sizes)
        }
        self._sizes = sizes

    def fitting(self, slices: Sequence[Slice]) -> StepGraph | None:
        """Return the smallest graph that holds a batch of `slices`; None if it is too large or has scored tokens."""
        tokens = sum(piece.stop - piece.start for piece in slices)
        if any(piece.scored for piece in slices):
            return None
        return next(
            (self._graphs[size] for size in self._sizes if len(slices) <= size.requests and tokens <= size.tokens), None
        )
