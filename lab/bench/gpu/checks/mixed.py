"""Steps in which requests decode beside a chunk of a prompt, as most steps under load are."""

from collections.abc import Iterator

from lab.bench.batcher import BLOCK
from lab.bench.gpu.row import Row
from lab.bench.gpu.subject import Subject, decoding, prefill


def rows(subject: Subject) -> Iterator[Row]:
    """Yield a row per size of the chunk, with a CUDA graph where one fits and without, after the row of a step in which
    as many requests only decode."""
    engine, scale = subject.engine, subject.scale
    decoders, captured = decoding(scale.mixed_batch, scale.context), engine._graphs
    alone = subject.step_seconds(engine, decoding(scale.mixed_batch + 1, scale.context))
    yield Row(f"{scale.mixed_batch + 1} decodes", {"ms": alone * 1e3})
    free = scale.mixed_batch * -(-scale.context // BLOCK)
    for chunk in scale.chunks:
        slices = [*decoders, prefill(chunk, scale.chunk_cached, first_page=free)]
        floor = subject.work(slices).seconds(subject.ceilings)
        fits = captured is not None and captured.fitting(slices) is not None
        for graphs in (captured, None) if fits else (None,):
            engine._graphs = graphs
            seconds = subject.step_seconds(engine, slices)
            yield Row(
                f"{scale.mixed_batch} decodes, chunk of {chunk}, {'launched' if graphs is None else 'graphs'}",
                {"ms": seconds * 1e3, "times_decode": seconds / alone, "of_floor": floor / seconds},
            )
    engine._graphs = captured
