"""Two schedulers, one lease: the other takes over, and two that both believe in it do no harm."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.redis_server import RedisServer
from tests.services import SECRET, Process, Stack, eventually
from tests.system.faults.load import Load, assert_all_completed, caller, request_for

STEP = 0.02


@pytest.fixture
def gateway(pair: Stack) -> Process:
    for name in ("a", "b"):
        pair.worker(name, engine=f"fake:{STEP}")
    return pair.gateway(throttle="none")


def epochs(process: Process) -> list[int]:
    return [line["epoch"] for line in process.logged("follows scheduler")]


def test_the_standby_takes_over_from_a_killed_leader(pair: Stack, gateway: Process) -> None:
    with Load(gateway.address, threads=4, max_tokens=20) as load:
        load.more(8)
        pair.schedulers[0].kill()
        pair.schedulers[1].wait_for("leads")
        eventually(lambda: epochs(gateway) == [1, 2], "the gateway follows")
        load.more(8)
    assert_all_completed(load)


def test_a_leader_that_ends_in_order_hands_over(pair: Stack, gateway: Process) -> None:
    with Load(gateway.address, threads=4, max_tokens=20) as load:
        load.more(8)
        assert pair.schedulers[0].terminate() == 0
        eventually(lambda: epochs(gateway) == [1, 2], "the gateway follows")
        load.more(8)
    assert_all_completed(load)


def test_a_worker_that_only_the_standby_knows_serves(pair: Stack, gateway: Process, redis: RedisServer) -> None:
    redis.kill()
    pair.schedulers.pop(0).kill()
    pair.worker("c", engine=f"fake:{STEP}")
    with caller(gateway.address) as stub:
        pair.await_workers(stub)
        for name in ("a", "b"):
            pair.workers[name].kill()
        responses = list(stub.Generate(request_for("Tell me", 10), timeout=60))
    assert responses[0].accepted.worker == "c"
    assert not epochs(gateway)[1:], "nobody leads"


def test_a_leader_that_was_frozen_is_not_believed_when_it_wakes(pair: Stack, gateway: Process) -> None:
    with Load(gateway.address, threads=4, max_tokens=20) as load:
        load.more(8)
        pair.schedulers[0].pause()
        eventually(lambda: epochs(gateway) == [1, 2], "the gateway follows")
        load.more(8)
        pair.schedulers[0].resume()
        pair.schedulers[0].wait_for("stands by")
        load.more(8)
    assert_all_completed(load)
    assert epochs(gateway) == [1, 2], "it never went back"


def test_without_redis_the_leader_goes_on_and_an_empty_one_is_told_the_epoch(
    pair: Stack, gateway: Process, redis: RedisServer
) -> None:
    with Load(gateway.address, threads=2, max_tokens=20) as load:
        redis.kill()
        pair.schedulers[0].wait_for("Redis is away")
        load.more(8)
        redis.start()
        eventually(lambda: epochs(gateway)[-1] >= 2, "a new term, above every one before")
        load.more(8)
    assert_all_completed(load)


def test_with_a_redis_that_stands_still_the_leader_goes_on(pair: Stack, gateway: Process, redis: RedisServer) -> None:
    with Load(gateway.address, threads=2, max_tokens=20) as load:
        redis.pause()
        pair.schedulers[0].wait_for("Redis is away")
        load.more(8)
        redis.resume()
        pair.schedulers[0].wait_for("Redis is back")
        load.more(8)
    assert_all_completed(load)


def test_the_standby_knows_all_that_the_leader_knew(pair: Stack, gateway: Process) -> None:
    prompts = [f"{number}: " + "a long system prompt that fills some blocks of the cache. " * 4 for number in range(8)]
    with caller(gateway.address) as stub:

        def worker_of(prompt: str) -> str:
            responses = list(stub.Generate(request_for(prompt, 50), timeout=60))
            return responses[0].accepted.worker

        with ThreadPoolExecutor(len(prompts)) as callers:
            before = list(callers.map(worker_of, prompts))
        assert set(before) == {"a", "b"}
        pair.schedulers[0].kill()
        eventually(lambda: epochs(gateway) == [1, 2], "the gateway follows")
        assert [worker_of(prompt) for prompt in prompts] == before, "it knows who holds which prompt"


def test_operators_reach_the_one_that_leads(pair: Stack, gateway: Process) -> None:
    command, options = [sys.executable, "-m", "cli"], ["--scheduler", pair.addresses, "--secret", SECRET]
    pair.schedulers[0].kill()
    pair.schedulers[1].wait_for("leads")
    shown = subprocess.run([*command, "status", *options], check=True, capture_output=True, text=True).stdout
    assert "serving" in shown
    subprocess.run([*command, "drain", "a", *options], check=True, capture_output=True)
    pair.workers["a"].wait_for("draining")
