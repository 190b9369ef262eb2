"""Rounds of faults in one cluster: every call completes, with the right text, and after each all is whole again."""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.redis_server import RedisServer
from tests.services import Process, Stack, eventually
from tests.system.attacks.report import Memory, Report
from tests.system.attacks.sizes import Sizes
from tests.system.faults.load import Load, assert_all_completed, caller, request_for

WORKERS = ("a", "b", "c")
WORKER = {"engine": "fake:0.005", "drain_seconds": 0.3}
CALLS = 6  # that end before a fault and after it
CALLERS = 4


class Cluster:
    """Three workers, one scheduler that leads and one that stands by, a gateway, Redis."""

    def __init__(self, stack: Stack, redis: RedisServer) -> None:
        self.redis = redis
        self.stack = stack
        for name in WORKERS:
            stack.worker(name, **WORKER)
        self.gateway = stack.gateway(throttle="none")

    def replace_scheduler(self, index: int) -> None:
        """Kill one, and start another where it listened."""
        killed = self.stack.schedulers[index]
        address = killed.address
        killed.kill()
        self.stack.schedulers[index] = self.stack.start("global_scheduler", listen=address, redis=self.redis.url)

    def await_whole(self) -> None:
        """Every worker is known, one scheduler leads, and nothing is left of any call."""
        with caller(self.gateway.address) as stub:
            self.stack.await_workers(stub)
        eventually(self._is_idle, "nothing runs or waits at any worker")

    def _is_idle(self) -> bool:
        self.stack.scheduler = max(self.stack.schedulers, key=term)
        members = self.stack.status().cluster.members
        return len(members) == len(WORKERS) and not any(m.load.running + m.load.waiting for m in members)


def term(scheduler: Process) -> int:
    """The latest in which it led."""
    return max((line["epoch"] for line in scheduler.logged("leads")), default=0)


Fault = Callable[[Cluster, random.Random, Load], None]


def worker_killed(cluster: Cluster, rng: random.Random, load: Load) -> None:
    cluster.stack.replace_worker(rng.choice(WORKERS), **WORKER)


def two_workers_killed(cluster: Cluster, rng: random.Random, load: Load) -> None:
    for name in rng.sample(WORKERS, 2):
        cluster.stack.replace_worker(name, **WORKER)


def worker_frozen(cluster: Cluster, rng: random.Random, load: Load) -> None:
    frozen = cluster.stack.workers[rng.choice(WORKERS)]
    frozen.pause()
    load.more(CALLS)
    frozen.resume()


def worker_drained(cluster: Cluster, rng: random.Random, load: Load) -> None:
    name = rng.choice(WORKERS)
    assert cluster.stack.workers[name].terminate() == 0
    cluster.stack.worker(name, **WORKER)


def scheduler_killed(cluster: Cluster, rng: random.Random, load: Load) -> None:
    cluster.replace_scheduler(rng.randrange(2))


def both_schedulers_killed(cluster: Cluster, rng: random.Random, load: Load) -> None:
    for index in range(2):
        cluster.replace_scheduler(index)


def scheduler_frozen(cluster: Cluster, rng: random.Random, load: Load) -> None:
    frozen = rng.choice(cluster.stack.schedulers)
    frozen.pause()
    load.more(CALLS)
    frozen.resume()


def redis_killed(cluster: Cluster, rng: random.Random, load: Load) -> None:
    cluster.redis.kill()
    load.more(CALLS)
    cluster.redis.start()


def redis_frozen(cluster: Cluster, rng: random.Random, load: Load) -> None:
    cluster.redis.pause()
    load.more(CALLS)
    cluster.redis.resume()


def another_gateway_killed(cluster: Cluster, rng: random.Random, load: Load) -> None:
    doomed = cluster.stack.gateway(throttle="none")
    with caller(doomed.address) as stub:
        calls = [stub.Generate(request_for(f"Doomed {number}", 4000), timeout=60) for number in range(CALLERS)]
        for call in calls:
            next(call)
        doomed.kill()


def callers_gone_and_a_worker_killed(cluster: Cluster, rng: random.Random, load: Load) -> None:
    with caller(cluster.gateway.address) as stub:
        calls = [stub.Generate(request_for(f"Gone {number}", 4000), timeout=60) for number in range(20)]
        next(calls[0])
        for call in calls:
            call.cancel()
        worker_killed(cluster, rng, load)


FAULTS: list[Fault] = [
    worker_killed,
    scheduler_frozen,
    callers_gone_and_a_worker_killed,
    redis_killed,
    two_workers_killed,
    scheduler_killed,
    worker_frozen,
    another_gateway_killed,
    redis_frozen,
    worker_drained,
    both_schedulers_killed,
]


@pytest.fixture
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.resume()
    server.kill()


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, redis: RedisServer) -> Iterator[Cluster]:
    stack = Stack(tmp_path_factory.mktemp("faults"), redis=redis.url)
    stack.scheduler.wait_for("leads")
    stack.schedulers.append(stack.start("global_scheduler", redis=redis.url))
    yield Cluster(stack, redis)
    stack.close()


def test_rounds_of_faults(cluster: Cluster, sizes: Sizes, report: Report) -> None:
    rng, memory, answers = random.Random(0), Memory(gateway=cluster.gateway), dict[int, set[object]]()
    rounds, ends = Counter[str](), Counter[str]()
    for number in range(sizes.rounds):
        fault = FAULTS[number % len(FAULTS)]
        with Load(cluster.gateway.address, threads=CALLERS, max_tokens=30) as load:
            load.more(CALLS)
            fault(cluster, rng, load)
            load.more(CALLS)
        assert_all_completed(load)
        for prompt, outputs in load.outputs.items():
            answers.setdefault(prompt, set()).update(outputs)
        cluster.await_whole()
        rounds[fault.__name__.replace("_", " ")] += 1
        ends += load.outcomes
    assert {len(texts) for texts in answers.values()} == {1}, "one prompt has one answer, whatever fails"
    report.add("rounds of faults", rounds, memory)
    report.add("calls beside them, each with the text of all others of its prompt", ends)
