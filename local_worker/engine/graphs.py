"""CUDA graphs of decode steps: launching a model's kernels one by one costs more than they take at small batches."""

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

Forward = Callable[[BatchInputs], torch.Tensor]  # to logits [rows, vocabulary]


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
        # The spare page is nobody's: what padding writes there is never read.
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
        """Logits [slices, vocabulary]; valid until the next replay of any graph."""
        inputs = BatchInputs([*slices, *self._idle[len(slices) :]], self._kv)
        inputs.complete(sampled)
        self._inputs.overwrite(inputs)
        self._backend.plan(inputs.slices)
        self._graph.replay()
        return self._logits[: len(slices)]


class DecodeGraphs:
    """One graph for each of SIZES up to what `requests` need; a request has at most `pages`.

    All are captured at once: what cannot be captured shows when a worker starts, and no request waits for it.
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
        # They run one after the other and share their memory; the largest comes first, so that it holds the others'.
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
        """Whether these are decoding requests, few enough."""
        return len(slices) <= self._sizes[-1] and all(
            piece.samples and piece.stop - piece.start == 1 for piece in slices
        )

    def logits(self, slices: Sequence[Slice], sampled: torch.Tensor) -> torch.Tensor:
        """[slices, vocabulary]; valid until the next call. `sampled`: see BatchInputs.complete."""
        size = next(size for size in self._sizes if size >= len(slices))
        return self._graphs[size].replay(slices, sampled)
