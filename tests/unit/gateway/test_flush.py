"""`fairlead flush` empties the prefix caches of workers that serve, and the scheduler's index with them."""

import subprocess
import sys

import pytest

from fairlead import SyncClient
from tests.services import SECRET, Stack

pytestmark = pytest.mark.e2e
PROMPT = "The quick brown fox jumps over the lazy dog. " * 4
BLOCKS = (len(PROMPT) - 1) // 16 * 16


def flush(stack: Stack, *worker: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "cli", "flush", *worker, "--scheduler", stack.scheduler.address]
    return subprocess.run([*command, "--secret", SECRET], capture_output=True, text=True, timeout=60)


def cached(address: str) -> int:
    with SyncClient(address) as client:
        return client.generate(PROMPT, max_tokens=1, ignore_eos=True).usage.cached_tokens


@pytest.mark.parametrize("named", [("w0",), ()])
def test_cached_prefixes_are_computed_again_after_a_flush(stack: Stack, named: tuple[str, ...]) -> None:
    stack.worker("w0")
    gateway = stack.gateway()
    assert [cached(gateway.address) for _ in range(2)] == [0, BLOCKS]
    done = flush(stack, *named)
    assert (done.returncode, done.stdout) == (0, "w0 empties its prefix cache\n"), done.stderr
    stack.workers["w0"].wait_for("prefix cache flushed")
    assert [cached(gateway.address) for _ in range(2)] == [0, BLOCKS]


def test_who_is_not_there_is_named(stack: Stack) -> None:
    done = flush(stack, "w9")
    assert done.returncode == 1
    assert "no worker 'w9' is attached; attached: none" in done.stderr
