"""Predicted waits: the queue of a client at a worker, deadlines that cannot be met, and when to come back."""

import random
import threading
import time
from collections import deque
from pathlib import Path

import grpc
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fairlead.errors import ClientLimit, DeadlineExceeded, FairleadError
from fairlead.rpc.status import from_call
from fairlead.v1 import inference_pb2_grpc
from gateway.core.start_predictor import (
    LONGEST_RETRY,
    MOST_CLIENTS,
    MOST_WORKERS,
    SURE,
    CallWaits,
    StartPredictor,
    is_close,
)
from tests.services import SECRET, Stack, eventually
from tests.unit.cli.commands import called
from tests.unit.gateway.http.http_client import HttpClient
from tests.unit.gateway.test_token_limits import request_for

CLIENTS = st.sampled_from(["a", "b"])
CALLS = st.integers(0, 5).map(str)


class WaitsMachine(RuleBasedStateMachine):
    """Whatever is told in whatever order, what waits is known, and no prediction is impossible."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.now = CallWaits(), 0.0
        self.waiting: set[tuple[str, str, str]] = set()

    @rule(client=CLIENTS, worker=CLIENTS, call=CALLS)
    def begins(self, client: str, worker: str, call: str) -> None:
        if not any(key[2] == f"{client}{call}" for key in self.waiting):
            assert self.waits.waits(client, worker, f"{client}{call}", self.now) >= 0
            self.waiting.add((client, worker, f"{client}{call}"))

    @rule(client=CLIENTS, worker=CLIENTS, call=CALLS, starts=st.booleans(), seconds=st.floats(0, 30))
    def ends(self, client: str, worker: str, call: str, starts: bool, seconds: float) -> None:
        self.now += seconds
        if starts:
            self.waits.started(client, worker, f"{client}{call}", self.now)
        else:
            self.waits.left(client, worker, f"{client}{call}")
        self.waiting.discard((client, worker, f"{client}{call}"))

    @invariant()
    def what_is_predicted_is_possible(self) -> None:
        self.waits.check_invariants()
        for client in "ab":
            assert 0 < self.waits.retry_after(client, 1.0, self.now) <= LONGEST_RETRY
            if not any(worker == "a" for _, worker, _ in self.waiting):
                assert not self.waits.is_hopeless(client, "a", 1e-9, self.now), "nothing waits there"


WaitsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestWaits = WaitsMachine.TestCase


@pytest.mark.parametrize("seed", range(5))
def test_waits_at_a_fair_worker_are_predicted(seed: int) -> None:
    """A server that takes turns among clients, with random times, of clients that ask for more than it serves."""
    draw, predictor, now, free_at = random.Random(seed), StartPredictor(), 0.0, 0.0
    queues: dict[str, deque[tuple[str, float, float]]] = {name: deque() for name in "abcd"}
    arrivals = sorted((draw.uniform(0, 60), name, str(n)) for name in "abcd" for n in range(200))
    turns, results, refused = deque("abcd"), list[bool](), list[bool]()
    while arrivals or any(queues.values()):
        if arrivals and (arrivals[0][0] <= free_at or not any(queues.values())):
            now, name, call = arrivals.pop(0)
            free_at = max(free_at, now)
            queues[name].append((name + call, now, predictor.waits(name, name + call, now)))
        else:
            now = free_at
            while not queues[turns[0]]:
                turns.rotate(-1)
            call, since, predicted = queues[turns[0]].popleft()
            predictor.started(turns[0], call, now)
            results.append(is_close(predicted, now - since))
            if predicted > 0.5:
                refused.append(now - since > SURE * predicted)
            turns.rotate(-1)
            free_at = now + draw.gammavariate(10.0, 0.01)
        predictor.check_invariants()
    assert sum(results) >= 0.8 * len(results)
    assert sum(refused) >= 0.95 * len(refused) > 0, "who was refused early would have missed the deadline"


def test_turns_of_clients_are_remembered_up_to_a_bound() -> None:
    predictor = StartPredictor()
    for number in range(MOST_CLIENTS + 1):
        predictor.waits(f"u{number}", "call", float(number))
        predictor.started(f"u{number}", "call", number + 0.5)
        predictor.check_invariants()
    predictor.waits("flood", "call", 1000.0)
    remembered = predictor.predict("u2", 1000.0)
    predictor.started("flood", "call", 1010.0)
    predictor.waits("flood", "call", 1010.0)
    predictor.check_invariants()
    assert predictor.predict("u2", 1010.0) == remembered < 0.5, "as long as it waited before"
    assert predictor.predict("u0", 1010.0) > 2, "one that is forgotten waits as first calls of all do"


def begin_and_start(waits: CallWaits, worker: str) -> None:
    """Let two calls of ann wait, of which one starts after eight seconds: a turn is two seconds then."""
    for call in "12":
        waits.waits("ann", worker, call, 0.0)
    waits.started("ann", worker, "1", 8.0)


def test_a_call_is_hopeless_where_less_time_is_left_than_it_surely_waits() -> None:
    waits = CallWaits()
    begin_and_start(waits, "w")
    assert not waits.is_hopeless("bob", "w", SURE * 2.0, 8.0)
    assert waits.is_hopeless("bob", "w", SURE * 1.99, 8.0)


def test_the_next_call_of_a_client_starts_the_sooner_the_more_workers_it_waits_at() -> None:
    told = []
    waits = CallWaits()
    for worker in "ab":
        begin_and_start(waits, worker)
        told.append(waits.retry_after("ann", 1.0, 8.0))
    assert told[0] == pytest.approx(2 * told[1])
    assert told[0] > 1.0
    assert waits.retry_after("bob", 7.0, 8.0) == 7.0


def test_a_bounded_number_of_workers_is_remembered_and_the_first_one_is_forgotten() -> None:
    waits = CallWaits()
    for number in range(MOST_WORKERS):
        begin_and_start(waits, str(number))
    assert waits.is_hopeless("bob", "0", 0.1, 8.0)
    waits.waits("ann", "another", "1", 8.0)
    assert [waits.is_hopeless("bob", worker, 0.1, 8.0) for worker in "01"] == [False, True]


def call(address: str, timeout: float = 60.0, user: str = "ann") -> grpc.Call | FairleadError:
    with grpc.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        stream = stub.Generate(request_for(8, 20), timeout=timeout, metadata=[("x-fairlead-user", user)])
        try:
            list(stream)
        except grpc.RpcError as error:
            return from_call(error)
        return stream


def test_calls_are_told_their_wait_and_hopeless_ones_are_refused_at_once(stack: Stack, tmp_path: Path) -> None:
    stack.worker("a", engine="fake:0.01", max_running=1)
    gateway = stack.gateway(http_listen="127.0.0.1:0", throttle="none")
    http = HttpClient(gateway.wait_for("listening")["http_port"])
    address, ended = gateway.address, list[grpc.Call | FairleadError]()

    def flood() -> None:
        ended.append(call(address))

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(40)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(ended) >= 6, "calls start, one after the other")

    begun = time.monotonic()
    refusal = call(address, timeout=1.0)
    assert isinstance(refusal, DeadlineExceeded)
    assert "it was not queued" in refusal.message
    assert time.monotonic() - begun < 0.8, "before its deadline"
    answer = http.post(
        "/v1/completions", {"prompt": "x", "max_tokens": 1, "user": "ann"}, x_fairlead_deadline=f"{time.time() + 1:.3f}"
    )
    assert answer.status == 504
    assert b"it was not queued" in answer.body
    wrong = http.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, x_fairlead_deadline="tomorrow")
    assert wrong.status == 400
    answer = http.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "user": "bob"})
    assert answer.status == 200, "another user waits for a turn, not for the flood"
    assert float(answer.headers["x-fairlead-predicted-wait"]) < 5
    for thread in threads:
        thread.join()
    assert all(isinstance(each, grpc.Call) for each in ended)
    waits = [
        float(value)
        for each in ended
        if isinstance(each, grpc.Call)
        for name, value in each.trailing_metadata() or ()
        if name == "x-fairlead-predicted-wait"
    ]
    assert len(waits) == len(ended)
    done = called("status", "--scheduler", stack.scheduler.address, "--gateway", address, "--secret", SECRET)
    assert "predicted waits: " in done.stdout, done.stderr


def test_a_client_with_too_many_calls_is_told_when_its_next_one_starts(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.01", max_running=1)
    gateway = stack.gateway(max_streams=64, throttle="none")
    ended, is_over = list[object](), threading.Event()

    def flood() -> None:
        while not is_over.is_set():
            ended.append(call(gateway.address))

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(24)]
    for thread in threads:
        thread.start()
    eventually(lambda: sum(isinstance(each, grpc.Call) for each in ended) >= 8, "calls start, one after the other")
    begun, before, first = time.monotonic(), sum(isinstance(each, grpc.Call) for each in ended), len(ended)
    eventually(lambda: sum(isinstance(each, grpc.Call) for each in ended) >= before + 8, "calls go on")
    interval = (time.monotonic() - begun) / (sum(isinstance(each, grpc.Call) for each in ended) - before)
    is_over.set()
    for thread in threads:
        thread.join()
    told = sorted(each.retry_after for each in ended[first:] if isinstance(each, ClientLimit))
    assert told[len(told) // 2] == pytest.approx(interval, rel=0.5), "the time from one start to the next"
