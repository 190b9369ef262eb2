"""CUDA graphs of decode steps. In small batches, launching the kernels one by one takes longer than their work."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from local_worker.core.batch import Slice
from local_worker.engine.attention import PagedAttention
from local_worker.engine.batch_inputs import BatchInputs, lone_slice
from local_worker.engine.flashinfer import FlashInfer, FlashInferDecode
from local_worker.engine.kv import PagedKV

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
WARM_UPS = 2

Forward = Callable[[BatchInputs], torch.Tensor]  # returns logits [rows, vocabulary]


class DecodeGraph:
    """The forward pass of `batch` decoding requests, captured once and replayed on new inputs."""

    def __init__(
        self,
        forward: Forward,
        attention: PagedAttention,
        kv: PagedKV,
        backend: FlashInferDecode,
        batch: int,
        pool: Any,
    ) -> None:
        self._kv = kv
        self._backend = backend
        # The spare page belongs to no request: padding writes there, and no request reads it.
        self._idle = [lone_slice([0], 0, [kv.spare_page], samples=True)] * batch
        self._inputs = BatchInputs(self._idle, kv)
        self._graph = torch.cuda.CUDAGraph()
        with attention.using(backend):
            attention.plan(self._idle, self._inputs.slots)
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    forward(self._inputs)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(self._graph, pool=pool):
                self._logits = forward(self._inputs)

    def replay(self, slices: Sequence[Slice], sampled: torch.Tensor) -> torch.Tensor:
        """Compute the logits [slices, vocabulary]; they are valid until the next replay of any graph."""
        inputs = BatchInputs([*slices, *self._idle[len(slices) :]], self._kv)
        inputs.complete(sampled)
        self._inputs.overwrite(inputs)
        self._backend.plan(inputs.slices)
        self._graph.replay()
        return self._logits[: len(slices)]


class DecodeGraphs:
    """One graph for each of SIZES up to the first that holds `requests`; a request has at most `pages` pages.

    All graphs are captured at the start, so that a failed capture shows at once and no request waits for one.
    """

    def __init__(
        self,
        forward: Forward,
        attention: PagedAttention,
        kv: PagedKV,
        backend: FlashInfer,
        requests: int,
        pages: int,
    ) -> None:
        most = next((size for size in SIZES if size >= requests), SIZES[-1])
        pool = torch.cuda.graph_pool_handle()
        # Graphs run one after another and share their memory. The largest is captured first: the others fit in its
        # memory.
        self._graphs = {
            size: DecodeGraph(
                forward,
                attention,
                kv,
                FlashInferDecode(kv, backend.kinds, backend.workspace, size, pages),
                size,
                pool,
            )
            for size in sorted(SIZES, reverse=True)
            if size <= most
        }
        self._sizes = sorted(self._graphs)

    def fits(self, slices: Sequence[Slice]) -> bool:
        """Return whether all `slices` are decoding requests and a graph is large enough for them."""
        return len(slices) <= self._sizes[-1] and all(
            piece.samples and piece.stop - piece.start == 1 and not piece.scored for piece in slices
        )

    def logits(self, slices: Sequence[Slice], sampled: torch.Tensor) -> torch.Tensor:
        """Compute the logits [slices, vocabulary], valid until the next call; `sampled` is described in
        BatchInputs.complete."""
        size = next(size for size in self._sizes if size >= len(slices))
        return self._graphs[size].replay(slices, sampled)
