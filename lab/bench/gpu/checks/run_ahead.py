"""The engine's loop with the next step launched before the last one has ended, and without, while all requests
decode."""

import time
from collections.abc import Iterator

from lab.bench.batcher import make_batcher, make_request, steps
from lab.bench.gpu.row import Row
from lab.bench.gpu.subject import Subject, decoding

PROMPT_TOKENS = 64
ROUNDS = 2


def rows(subject: Subject) -> Iterator[Row]:
    """Yield the step's duration on the device alone, then rows of the whole loop: its period, and the host's share."""
    engine, scale = subject.engine, subject.scale
    usual = engine.ahead
    context = PROMPT_TOKENS + scale.ahead_tokens // 2
    device = subject.step_seconds(engine, decoding(scale.ahead_batch, context))
    yield Row("forward pass", {"ms": device * 1e3})
    for round_, ahead in [(round_, ahead) for round_ in range(ROUNDS) for ahead in (0, 1)]:
        engine.ahead = ahead
        period, host = _loop(subject)
        yield Row(
            f"{ahead} ahead, round {round_ + 1}",
            {"ms": period * 1e3, "host_ms": host * 1e3, "times_forward": period / device},
        )
    engine.ahead = usual


def _loop(subject: Subject) -> tuple[float, float]:
    """Return the wall and CPU seconds per step, from the first in which every request decodes to the last."""
    batcher, scale = make_batcher(), subject.scale
    for number in range(scale.ahead_batch):
        batcher.queue.submit(make_request([number + 1] * PROMPT_TOKENS, scale.ahead_tokens, number), 0.0)
    full = [
        (time.perf_counter(), time.thread_time())
        for advances in steps(subject.engine, batcher)
        if len(advances) == scale.ahead_batch
    ]
    (began, cpu_began), (ended, cpu_ended) = full[0], full[-1]
    return (ended - began) / (len(full) - 1), (cpu_ended - cpu_began) / (len(full) - 1)
