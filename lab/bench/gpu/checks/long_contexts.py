"""Decode steps of requests with long contexts, which read more keys and values than weights."""

from collections.abc import Iterator

from lab.bench.gpu.row import Row
from lab.bench.gpu.subject import Subject, decoding


def rows(subject: Subject) -> Iterator[Row]:
    """Yield a row per number of requests and length of their contexts."""
    for requests, context in subject.scale.long_contexts:
        slices = decoding(requests, context)
        seconds = subject.step_seconds(subject.engine, slices)
        floor = subject.work(slices).bytes_read / subject.ceilings.bytes_per_second
        yield Row(
            f"{requests} requests of {context:,} tokens",
            {"ms": seconds * 1e3, "tokens_per_s": requests / seconds, "of_memory": floor / seconds},
        )
