"""Prompts that wait to be tokenized are bounded in bytes, and callers above the bound learn why."""

from concurrent.futures import Future, ThreadPoolExecutor

from tests.services import Stack, eventually
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import Answer

CALLS, PROMPT, MIB = 60, "x" * 10**6, 1 << 20


def refused(calls: list[Future[Answer]]) -> list[Answer]:
    return [call.result() for call in calls if call.done() and call.result().status == 429]


def test_many_long_prompts_at_one_time_take_bounded_memory(stack: Stack) -> None:
    stack.worker("a", kv_tokens=4 * MIB, max_prompt_tokens=2 * MIB)
    gateway, http = serving(stack, throttle="none", waiting_prompts_mib=16)
    eventually(lambda: http.complete().status == 200, "the worker is known")
    stack.workers["a"].pause()  # nothing is tokenized
    before = gateway.resident
    gateway.begin_peak()
    with ThreadPoolExecutor(CALLS) as callers:
        calls = [callers.submit(http.complete, prompt=PROMPT) for _ in range(CALLS)]
        eventually(lambda: len(refused(calls)) >= CALLS // 4, "callers above the bound are refused")
        stack.workers["a"].kill()
    for answer in refused(calls):
        assert "bytes of prompts wait to be tokenized" in answer.error["message"]
        assert answer.headers["retry-after"] == "1"
    assert gateway.peak < before + 160, "it would be 300 if all waited"
