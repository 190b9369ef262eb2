"""CUDA graphs of decode steps: launching a model's kernels one by one costs more than they take at small batches."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from local_worker.core.batch import Slice
from local_worker.engine.attention import PagedAttention
from local_worker.engine.flashinfer import FlashInferDecode, Kind
from local_worker.engine.kv import PagedKV
from local_worker.engine.packing import Inputs, lone_slice

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
WARM_UPS = 2

Forward = Callable[[Inputs], torch.Tensor]  # to logits [rows, vocabulary]


class DecodeGraph:
    """The forward pass of `batch` decoding requests, captured once and replayed on new inputs."""

    def __init__(
        self, forward: Forward, attention: PagedAttention, kv: PagedKV, kinds: Sequence[Kind], batch: int, pages: int
    ) -> None:
        self.batch = batch
        self._idle = lone_slice([0], 0, [kv.spare_page], samples=True)
        self._backend = FlashInferDecode(kv, kinds, batch, pages)
        self._inputs = Inputs([self._idle] * batch, kv)
        self._graph = torch.cuda.CUDAGraph()
        padding = [self._idle] * batch
        with attention.using(self._backend):
            attention.plan(padding, self._inputs.slots)
            for _ in range(WARM_UPS):
                forward(self._inputs)
            torch.cuda.synchronize()
            with torch.cuda.graph(self._graph):
                self._logits = forward(self._inputs)

    def replay(self, slices: Sequence[Slice]) -> torch.Tensor:
        """Logits [slices, vocabulary]; valid until the next replay."""
        padded = [*slices, *[self._idle] * (self.batch - len(slices))]
        self._inputs.fill(padded)
        self._backend.plan(padded)
        self._graph.replay()
        return self._logits[: len(slices)]


class DecodeGraphs:
    """One graph for each of SIZES, captured when first needed; `pages` is the most that one request has."""

    def __init__(
        self, forward: Forward, attention: PagedAttention, kv: PagedKV, kinds: Sequence[Kind], pages: int
    ) -> None:
        self._capture = partial(DecodeGraph, forward, attention, kv, kinds, pages=pages)
        self._graphs: dict[int, DecodeGraph] = {}

    def fits(self, slices: Sequence[Slice]) -> bool:
        """Whether these are decoding requests, few enough."""
        return len(slices) <= SIZES[-1] and all(piece.samples and piece.stop - piece.start == 1 for piece in slices)

    def logits(self, slices: Sequence[Slice]) -> torch.Tensor:
        """[slices, vocabulary]; valid until the next call."""
        size = next(size for size in SIZES if size >= len(slices))
        if size not in self._graphs:
            self._graphs[size] = self._capture(batch=size)
        return self._graphs[size].replay(slices)
