"""A worker's default limits follow its device; configured ones stay."""

from typing import Any

import pytest

from local_worker.config import WorkerConfig
from local_worker.core.limits import BatchLimits
from local_worker.sizes import limits, quantum_tokens


def limits_with(device: str, longest: int, **options: Any) -> BatchLimits:
    return limits(WorkerConfig(secret="s" * 16, **options), device, longest, block_tokens=16)


@pytest.mark.parametrize(
    ("device", "longest", "expected"),
    [("cpu", 4096, (32, 256, 4080)), ("cuda", 131_072, (128, 2048, 131_056)), ("cuda", 8192, (128, 2048, 8176))],
)
def test_defaults_follow_the_device_and_the_longest_context(
    device: str, longest: int, expected: tuple[int, int, int]
) -> None:
    found = limits_with(device, longest)
    assert (found.max_running, found.token_budget, found.max_prompt_tokens) == expected


@pytest.mark.parametrize(("device", "expected"), [("cpu", 64), ("cuda", 512)])
def test_the_quantum_follows_the_speed_of_the_device(device: str, expected: int) -> None:
    assert quantum_tokens(WorkerConfig(secret="s" * 16), device) == expected
    assert quantum_tokens(WorkerConfig(secret="s" * 16, quantum_tokens=7), device) == 7


def test_configured_sizes_take_precedence() -> None:
    found = limits_with("cuda", 8192, max_running=5, token_budget=7, max_prompt_tokens=100)
    assert (found.max_running, found.token_budget, found.max_prompt_tokens) == (5, 7, 100)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("options", [{"max_running": 5000}, {"token_budget": 2}, {"token_budget": 100_000}])
def test_defaults_leave_prompts_room_beside_a_full_batch(device: str, options: dict[str, int]) -> None:
    found = limits_with(device, 4096, **options)
    assert found.token_budget > found.max_running >= 1


def test_prompts_are_accepted_where_the_whole_context_is_one_block() -> None:
    assert limits_with("cpu", 16).max_prompt_tokens == 1
