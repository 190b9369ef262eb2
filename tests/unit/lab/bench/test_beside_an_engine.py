"""What `lab.bench.fair_slices beside` measures: the stand-in schedules as vLLM does, and how others shorten waits."""

import pytest

from lab.bench.fair_slices import beside
from lab.bench.fair_slices.driven import request_of
from local_worker.core.external import LongPrompts


def computed(part: int | None, *lengths: int) -> list[tuple[int, ...]]:
    """The number of tokens of each prompt that are computed after each of three steps."""
    batch = beside.new_batch("fcfs", LongPrompts.PARTS if part else LongPrompts.WHOLE)
    engine = beside.Engine(batch, part)
    requests = [
        request_of(f"user-{number}", [number + 1] * length, 1, number, beside.BLOCK)
        for number, length in enumerate(lengths)
    ]
    for request in requests:
        batch.queue.submit(request, 0.0)
    found = []
    for _ in range(3):
        engine.step()
        found.append(tuple(engine.computed.get(request, request.prompt_tokens) for request in requests))
    return found


def test_the_stand_in_gives_a_step_in_the_order_of_arrival_and_a_part_of_it_to_each_prompt() -> None:
    assert computed(None, 3000, 100)[:2] == [(2048, 0), (3000, 100)]
    assert computed(512, 3000, 100) == [(512, 100), (2560, 100), (3000, 100)], "alone, it has the whole step"


@pytest.mark.parametrize(
    ("long_prompts", "part", "least", "most"),
    [
        (LongPrompts.PARTS, beside.PART, 1, 2),
        (LongPrompts.CHAIN, None, 1, 2),
        (LongPrompts.WHOLE, None, 10, 17),  # for one long prompt, which takes 16 steps
    ],
)
def test_a_short_prompt_waits_for_few_steps_beside_long_ones(
    long_prompts: LongPrompts, part: int | None, least: int, most: int
) -> None:
    engine = beside.Engine(beside.new_batch("dlpm", long_prompts), part)
    contention = beside.Contention(engine, 32_768, 6, 3)
    contention.run()
    waits = [steps for steps, _ in contention.waits[1:]]  # the first asks alone
    assert least <= max(waits) <= most
