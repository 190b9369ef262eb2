"""FlashInfer beside torch's SDPA over the same pages."""

from collections.abc import Iterator

from lab.bench.gpu.row import Row
from lab.bench.gpu.subject import Subject, decoding, prefill
from local_worker.engine.sdpa import Sdpa


def rows(subject: Subject) -> Iterator[Row]:
    """Yield a row per step and backend; no graphs are used, since SDPA has none."""
    engine, scale = subject.engine, subject.scale
    usual, captured = engine._attention._backend, engine._graphs
    engine._graphs = None
    steps = {f"{requests} decodes": decoding(requests, scale.context) for requests in scale.batches}
    steps |= {f"{new:,} new, {cached:,} cached": [prefill(new, cached)] for new, cached in scale.prefills}
    for backend in (usual,) if isinstance(usual, Sdpa) else (usual, Sdpa(engine._kv)):
        engine._attention._backend = backend
        for name, slices in steps.items():
            yield Row(f"{name}, {type(backend).__name__}", {"ms": subject.step_seconds(engine, slices) * 1e3})
    engine._attention._backend, engine._graphs = usual, captured
