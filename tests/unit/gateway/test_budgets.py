"""Budgets at real gateways: exact over two of them and a Redis that dies, and kept in a file when all are killed."""

import hashlib
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc

from fairlead.errors import FairleadError, ThrottledTenant, ThrottledUser
from fairlead.rpc.status import from_call
from fairlead.v1 import inference_pb2_grpc
from tests.redis_server import RedisServer
from tests.services import Process, Stack, eventually
from tests.unit.cli.commands import called
from tests.unit.gateway.http.http_client import TEXT, HttpClient, by
from tests.unit.gateway.test_token_limits import request_for
from throttler.core.budget_ledger import PARTS

CALL = 20  # tokens


def call(
    gateway: Process, user: str = "ann", *, tokens: int = CALL, interaction: str = ""
) -> grpc.Call | FairleadError:
    """The ended call, or why it was refused."""
    with grpc.insecure_channel(gateway.address) as channel:
        request = request_for(tokens // 2, tokens - tokens // 2)
        if interaction:
            request.interaction.id = interaction
        stream = inference_pb2_grpc.InferenceStub(channel).Generate(
            request, timeout=60, metadata=[("x-fairlead-user", user)]
        )
        try:
            list(stream)
        except grpc.RpcError as error:
            return from_call(error)
        return stream


def admitted(calls: Iterator[grpc.Call | FairleadError]) -> int:
    return sum(CALL for each in calls if isinstance(each, grpc.Call))


def profiles(directory: Path, text: str) -> Path:
    path = directory / "profiles.yaml"
    path.write_text(text)
    return path


def test_two_gateways_and_a_redis_that_dies_never_exceed_a_budget(stack: Stack, tmp_path: Path) -> None:
    redis, limit = RedisServer(tmp_path), 2_000
    stack.worker("a", engine="fake:0.0005")
    settings = {
        "redis": redis.url,
        "profiles": profiles(tmp_path, f"limits: {{user_tokens_per_day: {limit}, user_per_minute: 100000}}"),
    }
    gateways = [stack.gateway(**settings) for _ in range(2)]
    used, is_over = list[int](), threading.Event()

    def spend(number: int) -> None:
        while not is_over.is_set():
            if isinstance(call(gateways[number % 2]), grpc.Call):
                used.append(number)

    threads = [threading.Thread(target=spend, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    draw = random.Random(1)
    for _ in range(2):
        time.sleep(draw.uniform(0.2, 1.0))
        redis.kill()
        redis.start()
    quiet, before = 0, -1
    while quiet < 3:
        time.sleep(2.0)
        now = len(used)
        quiet, before = (quiet + 1 if now == before and now else 0), now
    is_over.set()
    for thread in threads:
        thread.join()
    assert 0.97 * limit <= CALL * before <= limit
    refusal = call(gateways[0])
    assert isinstance(refusal, ThrottledUser)
    assert refusal.retry_after > 80_000
    redis.kill()


def test_a_killed_gateways_budget_is_in_the_file(stack: Stack, tmp_path: Path) -> None:
    stack.worker("a", engine="fake:0.0005")
    limit, total = 2_000, 0
    settings = {
        "ledger": tmp_path / "ledger",
        "profiles": profiles(tmp_path, f"limits: {{user_tokens_per_calendar_month: {limit}}}"),
        "throttle": "rpm:100000,100000",
    }
    for _ in range(3):
        gateway = stack.gateway(**settings)
        total += admitted(call(gateway) for _ in range(15))
        gateway.kill()
    gateway = stack.gateway(**settings)
    while got := admitted(call(gateway) for _ in range(5)):
        total += got
    assert limit - 3 * limit // PARTS - CALL <= total <= limit


def test_a_caller_is_warned_before_a_budget_is_used_up_and_an_interaction_is_not_cut(
    stack: Stack, tmp_path: Path
) -> None:
    stack.worker("a", engine="fake:0.0005")
    text = """
prices: {default: {input: 1000, output: 3000}}
limits: {tenant_money_per_month: 4, interaction_tokens: 60}
"""
    gateway = stack.gateway(profiles=profiles(tmp_path, text), http_listen="127.0.0.1:0")
    assert isinstance(call(gateway, tokens=1000, interaction="run"), FairleadError), "the interaction's own budget"
    assert isinstance(call(gateway, tokens=20, interaction="run"), grpc.Call)
    big = call(gateway, "bob", tokens=1960)
    assert isinstance(big, grpc.Call)
    [warning] = [value for name, value in big.trailing_metadata() or () if name == "x-fairlead-budget"]
    assert str(warning).startswith("tenant_money_per_month=4;used=99%;reset=")
    refusal = call(gateway, "carol", tokens=100)
    assert isinstance(refusal, ThrottledTenant)
    assert "tenant 'default' is over tenant_money_per_month=4" in refusal.message
    assert "need 0.2 in money, and 0.04 are left" in refusal.message
    assert isinstance(call(gateway, tokens=40, interaction="run"), grpc.Call), "it began within the budget"
    answer = HttpClient(gateway.wait_for("listening")["http_port"]).complete(prompt="x", max_tokens=1, user="dave")
    assert answer.status == 429
    assert "used=10" in answer.headers["x-fairlead-budget"], "a little more than the whole"
    assert int(answer.headers["retry-after"]) > 1_000_000


def test_a_batch_has_an_error_for_a_call_that_needs_more_than_a_whole_budget(stack: Stack, tmp_path: Path) -> None:
    stack.worker("a", engine="fake:0.0005")
    gateway = stack.gateway(
        profiles=profiles(tmp_path, "limits: {tenant_tokens_per_day: 100}"), http_listen="127.0.0.1:0"
    )
    requests, answers = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    lines = [
        {"custom_id": name, "method": "POST", "url": TEXT, "body": {"prompt": "x", "max_tokens": tokens}}
        for name, tokens in (("too large", 101), ("small", 5))
    ]
    requests.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    url = f"http://127.0.0.1:{gateway.wait_for('listening')['http_port']}"
    assert called("batch", "run", str(requests), "--out", str(answers), "--url", url).returncode == 1
    errors = {line["custom_id"]: line["error"] for line in map(json.loads, answers.read_text().splitlines())}
    assert errors["small"] is None
    assert "over tenant_tokens_per_day=100" in errors["too large"]["message"]
    assert "more than all of it" in errors["too large"]["message"]


def test_each_key_has_its_own_budget(stack: Stack, tmp_path: Path) -> None:
    stack.worker("a", engine="fake:0.0005")
    names = ("first", "second", "probe")
    keys = [f"  - {{hash: {hashlib.sha256(key.encode()).hexdigest()}, tenant: t}}\n" for key in names]
    (tmp_path / "keys.yaml").write_text("keys:\n" + "".join(keys))
    settings = {
        "keys": tmp_path / "keys.yaml",
        "profiles": profiles(tmp_path, "limits: {key_tokens_per_hour: 50}"),
        "http_listen": "127.0.0.1:0",
    }
    gateway = stack.start("gateway", scheduler=stack.addresses, **settings)
    http = HttpClient(gateway.wait_for("listening")["http_port"])

    def status(key: str, tokens: int = 30) -> int:
        return http.post(TEXT, {"prompt": "x", "max_tokens": tokens}, **by(key)).status

    eventually(lambda: status("probe", 1) == 200, "the gateway knows the worker")
    assert [status("first"), status("first"), status("second")] == [200, 429, 200]
