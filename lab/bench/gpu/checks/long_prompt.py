"""The time between two tokens of requests that decode while a long prompt is computed in chunks beside them."""

import time
from collections.abc import Iterator
from dataclasses import replace

from lab.bench.batcher import make_request, steps
from lab.bench.gpu.contention import Queue
from lab.bench.gpu.row import Row
from lab.bench.gpu.scale import Scale
from lab.bench.gpu.subject import Subject
from serving.statistics import percentile

PROMPT_TOKENS = 64
STEPS_BEFORE = 5  # tokens of each decoding request before the long prompt arrives


def rows(subject: Subject) -> Iterator[Row]:
    """Yield a row per budget of tokens in a step."""
    scale = subject.scale
    for budget in scale.budgets:
        gaps = _gaps(subject, replace(queue(scale), token_budget=budget))
        yield Row(
            f"{scale.long_prompt:,} tokens beside {scale.decoders}, budget {budget:,}",
            {
                "p50_ms": percentile(gaps, 50) * 1e3,
                "p99_ms": percentile(gaps, 99) * 1e3,
                "most_ms": max(gaps) * 1e3,
            },
        )


def queue(scale: Scale) -> Queue:
    """Return the queue of the long prompt and the requests that decode."""
    return Queue(
        "dlpm",
        scale.quantum,
        min(scale.kv_tokens, 4 * scale.long_prompt),
        max_prompt=scale.long_prompt,
        max_output=scale.decoder_tokens,
    )


def _gaps(subject: Subject, queue: Queue) -> list[float]:
    """Return the seconds between tokens of the decoding requests while the long prompt is computed."""
    engine, scale, batcher = subject.engine, subject.scale, queue.batcher()
    for number in range(scale.decoders):
        batcher.queue.submit(make_request([number + 1] * PROMPT_TOKENS, scale.decoder_tokens, number), 0.0)
    long = make_request([3] * scale.long_prompt, 2, scale.decoders)
    last: dict[str, float] = {}
    gaps: list[float] = []
    submitted, began = False, time.perf_counter()
    for advances in steps(engine, batcher, lambda: time.perf_counter() - began):
        now = time.perf_counter() - began
        for advance in advances:
            if advance.request is long and advance.finish is not None:
                return gaps
            if submitted and advance.request.id in last and advance.request is not long:
                gaps.append(now - last[advance.request.id])
            last[advance.request.id] = now
            if advance.request.output_tokens == STEPS_BEFORE and not submitted:
                batcher.queue.submit(long, now)
                submitted = True
    return gaps
