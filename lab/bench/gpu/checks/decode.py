"""Decode steps of 1 to 128 requests, with CUDA graphs and without, beside the time in which memory can be read."""

from collections.abc import Iterator

from lab.bench.gpu.row import Row
from lab.bench.gpu.subject import Subject, decoding


def rows(subject: Subject) -> Iterator[Row]:
    """Yield a row per number of requests, first of replayed graphs and then of kernels launched one by one."""
    engine, bandwidth = subject.engine, subject.ceilings.bytes_per_second
    captured = engine._graphs
    yield Row(
        "engine",
        {
            "attention": type(engine._attention._backend).__name__,
            "graphs": captured is not None,
            "weights_gb": subject.work(()).bytes_read / 1e9,
        },
    )
    for graphs in (captured, None) if captured is not None else (None,):
        engine._graphs = graphs
        for requests in subject.scale.batches:
            slices = decoding(requests, subject.scale.context)
            seconds = subject.step_seconds(engine, slices)
            yield Row(
                f"{requests} requests, {'graphs' if graphs is not None else 'launched'}",
                {
                    "ms": seconds * 1e3,
                    "tokens_per_s": requests / seconds,
                    "of_memory": subject.work(slices).bytes_read / bandwidth / seconds,
                },
            )
    engine._graphs = captured
