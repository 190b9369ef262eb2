"""The background class at a real gateway: who may have it, and that its calls use up nothing of interactive ones."""

import hashlib
import threading
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import QueueFull
from fairlead.v1 import inference_pb2_grpc, scheduler_pb2
from gateway.core.client_limits import OpenCallLimiter, counted_as
from gateway.tenants import CallerIdentity
from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Fleet
from global_scheduler.wire import load_from
from serving.service_tiers import DEFAULT, FLEX, HEADER
from simulation.spec import GLOBAL_POLICIES
from tests.services import DEADLINE, Stack, eventually
from tests.unit.gateway.http.http_client import TEXT, HttpClient, by
from tests.unit.gateway.test_budgets import profiles
from tests.unit.gateway.test_token_limits import request_for
from tests.unit.global_scheduler.driving import CONFIG, identity, placed, request
from tests.unit.throttler.test_decider import CALL, decider
from throttler.core.decider import Permit
from throttler.core.throttle import Rejected


@pytest.mark.parametrize(
    ("asked", "allowed", "expected"),
    [
        ("", (DEFAULT, FLEX), DEFAULT),
        ("flex", (DEFAULT, FLEX), FLEX),
        ("priority", (DEFAULT, FLEX), DEFAULT),
        ("flex", (DEFAULT,), DEFAULT),
        ("default", (FLEX,), FLEX),
    ],
)
def test_a_call_gets_the_tier_that_it_asks_for_if_its_key_may_have_it(
    asked: str, allowed: tuple[str, ...], expected: str
) -> None:
    caller = CallerIdentity("t", "t", 1.0, service_tiers=allowed)
    assert caller.is_background(asked) == (expected == FLEX)


def test_calls_of_both_classes_at_a_full_worker(stack: Stack, tmp_path: Path) -> None:
    stack.worker("a", engine="fake:0.01", max_running=2)
    keys = {"both": "", "slow": ", service_tiers: [flex]", "fast": ", service_tiers: [default]"}
    entries = [
        f"  - {{hash: {hashlib.sha256(key.encode()).hexdigest()}, tenant: t{more}}}\n" for key, more in keys.items()
    ]
    (tmp_path / "keys.yaml").write_text("keys:\n" + "".join(entries))
    settings = {
        "keys": tmp_path / "keys.yaml",
        "profiles": profiles(tmp_path, "limits: {user_per_minute: 8}"),
        "http_listen": "127.0.0.1:0",
    }
    gateway = stack.start("gateway", scheduler=stack.addresses, **settings)
    http = HttpClient(gateway.wait_for("listening")["http_port"])

    def tier(key: str, tokens: int = 1, **fields: object) -> str:
        answer = http.post(TEXT, {"prompt": "x", "max_tokens": tokens, **fields}, **by(key))
        assert answer.status == 200, answer.body
        return answer.headers.get(HEADER, DEFAULT)

    eventually(lambda: http.post(TEXT, {"prompt": "x", "max_tokens": 1}, **by("both")).status == 200, "a worker")
    assert tier("both", service_tier="flex") == FLEX
    assert tier("both", service_tier="auto") == DEFAULT
    assert tier("slow") == FLEX
    assert tier("fast", service_tier="flex") == DEFAULT
    tiers: list[str] = []
    batch = [threading.Thread(target=lambda: tiers.append(tier("slow", 150)), daemon=True) for _ in range(12)]
    for thread in batch:
        thread.start()
    eventually(lambda: stack.status().cluster.members[0].load.background_waiting >= 8, "the batch waits")
    for _ in range(3):
        tier("both", tokens=2)
    assert all(thread.is_alive() for thread in batch), "interactive calls did not wait for the batch"
    load = stack.status().cluster.members[0].load
    assert load_from(load).waiting == 0
    assert not any(pool.overloaded for pool in stack.status().cluster.pools)
    with grpc.insecure_channel(gateway.address) as channel:
        asked = request_for(2, 2)
        asked.service_tier = "flex"
        stream = inference_pb2_grpc.InferenceStub(channel).Generate(
            asked, timeout=60, metadata=[("authorization", "Bearer fast")]
        )
        assert next(stream).accepted.service_tier == DEFAULT
    for thread in batch:
        thread.join(DEADLINE)
    assert tiers == [FLEX] * 12


def test_background_calls_use_up_no_rate_of_interactive_ones() -> None:
    made = decider()
    for second in range(100):
        assert isinstance(made.decide(CALL._replace(interaction="", background=True), second / 100), Permit)
    for _ in range(3):
        assert isinstance(made.decide(CALL._replace(interaction=""), 1.0), Permit)
    assert isinstance(made.decide(CALL._replace(interaction=""), 1.0), Rejected)


@given(st.lists(st.sampled_from(["ann", "bob/x", "carol"]), max_size=60))
def test_background_calls_leave_half_of_all_open_calls_to_others(callers: list[str]) -> None:
    limiter, count = OpenCallLimiter(per_client=100, total=40), 0
    for caller in callers:
        try:
            limiter.open(counted_as(caller, background=True), protected=False)
        except QueueFull:
            continue
        count += 1
    assert count <= 20
    for _ in range(10):
        limiter.open("ann", protected=False)
    limiter.check_invariants()


def test_an_interactive_request_is_placed_as_if_there_were_no_background_ones() -> None:
    policies = [GLOBAL_POLICIES["least-delay"](CONFIG) for _ in range(2)]
    made = Dispatcher(policies[0], BlockIndex(1000), Fleet(5), policies[1])
    members = [made.attached(identity(worker), (), now=0) for worker in ("a", "b")]
    lower = [made.dispatch(request(f"low{number}", background=True), 0) for number in range(5)]
    assert sorted(placed(each) for each in lower) == ["a", "a", "a", "b", "b"], "they are spread over the workers"
    assert placed(made.dispatch(request("one"), 0)) == "a", "a has more of the background class, and is the first"
    assert placed(made.dispatch(request("two"), 0)) == "b"
    made.check_invariants()
    for number in range(5):
        for member in members:
            made.ended(member, f"low{number}", 1, True, 1)
    made.lost(members[0])
    made.check_invariants()


def test_a_scheduler_takes_the_load_of_interactive_requests_for_a_workers_load() -> None:
    told = scheduler_pb2.Load(
        running=9,
        waiting=8,
        kv_tokens_used=700,
        background_running=7,
        background_waiting=5,
        background_kv_tokens=600,
    )
    load = load_from(told)
    assert (load.running, load.waiting, load.kv_tokens_used) == (2, 3, 100)
