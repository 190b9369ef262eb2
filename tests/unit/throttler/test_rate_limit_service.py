"""The rate limit service in a process of its own: it decides as the gateway does, about calls that it never sees."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from serving.envoy import ratelimit_pb2
from tests.redis_server import RedisServer
from tests.services import Process, Stack, StartService, eventually
from tests.unit.throttler.rate_limit_client import OK, OVER_LIMIT, client_of, descriptor, response_headers

ROOT = Path(__file__).parents[3]
INTERACTION = "x-fairlead-interaction"
ANN = {"tenant": "acme", "user": "ann", "app": "chat"}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    yield stack
    stack.close()


def test_calls_over_the_limit_are_told_which_and_when_to_come_back(start_service: StartService) -> None:
    with client_of(start_service("throttler", throttle="oit:2")) as client:
        first, second, third = (client.ask(ANN) for _ in range(3))
        assert [answer.overall_code for answer in (first, second, third)] == [OK, OK, OVER_LIMIT]
        assert [answer.statuses[0].limit_remaining for answer in (first, second, third)] == [1, 0, 0]
        assert all(answer.statuses[0].current_limit.requests_per_unit == 2 for answer in (first, second, third))
        assert "user 'acme/ann' is over user_per_minute=2" in response_headers(third)["x-fairlead-reason"]
        assert third.raw_body.decode() == response_headers(third)["x-fairlead-reason"]
        assert 0 < int(response_headers(third)["retry-after"]) <= 60
        assert 0 < third.statuses[0].duration_until_reset.ToNanoseconds() <= 60e9
        assert client.admits(tenant="acme", user="bob"), "another user has a limit of his own"


def test_background_calls_use_up_no_rate_and_count_towards_longer_budgets(
    start_service: StartService, tmp_path: Path
) -> None:
    (tmp_path / "profiles.yaml").write_text("limits: {user_tokens_per_hour: 100000}")
    with client_of(start_service("throttler", throttle="oit:2", profiles=tmp_path / "profiles.yaml")) as client:
        flex = {**ANN, "service_tier": "flex"}
        assert all(client.admits(**flex) for _ in range(5))
        assert [client.admits(**ANN, service_tier="default") for _ in range(3)] == [True, True, False]
        large = ratelimit_pb2.RateLimitRequest(
            domain="fairlead", descriptors=[descriptor({**flex, "user": "bob"}, 90_000)]
        )
        assert [client.send(large).overall_code for _ in range(2)] == [OK, OVER_LIMIT]


def test_the_example_of_a_gateway_of_ones_own_asks(start_service: StartService) -> None:
    service, said = start_service("throttler", throttle="oit:1"), []
    for _ in range(2):
        command = [sys.executable, "examples/limits.py", "--user", "ann", "--service", service.address]
        said += subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    assert said[:2] == ["call 1 is admitted; 0 calls remain", "call 2 is admitted; 0 calls remain"]
    assert said[2].startswith("call 1 is refused: overloaded, and user 'default/ann' is over user_per_minute=1")


def test_an_app_has_a_limit_for_each_tenant(start_service: StartService, tmp_path: Path) -> None:
    (tmp_path / "profiles.yaml").write_text("apps: {chat: {per_minute: 2}}")
    with client_of(start_service("throttler", profiles=tmp_path / "profiles.yaml")) as client:
        answers = [client.ask({"tenant": "acme", "user": user, "app": "chat"}) for user in "abc"]
        assert [answer.overall_code for answer in answers] == [OK, OK, OVER_LIMIT]
        told = [answer.statuses[0] for answer in answers]
        assert [(status.current_limit.requests_per_unit, status.limit_remaining) for status in told] == [
            (2, 1), (2, 0), (2, 0),
        ], "less is left of the app's limit than of a user's 60"  # fmt: skip
        refused = client.ask({"tenant": "acme", "user": "d", "app": "chat"})
        assert "app 'chat' of tenant 'acme' is over app_per_minute=2" in refused.raw_body.decode()
        assert refused.statuses[0].current_limit.requests_per_unit == 2
        assert client.admits(tenant="other", user="a", app="chat")
        assert client.admits(tenant="acme", user="d", app="invented"), "it counts as the default app"


def test_an_interaction_that_another_instance_opened_goes_on(start_service: StartService) -> None:
    first, second = (start_service("throttler", throttle="oit:1") for _ in range(2))
    with client_of(first) as client:
        opened = client.ask({**ANN, "interaction": "journey"})
    carried = response_headers(opened)[INTERACTION]
    [upstream] = opened.request_headers_to_add
    assert upstream.key == "x-fairlead-interaction-token"
    assert carried == f"journey;token={upstream.value}"
    with client_of(second) as client:
        assert client.admits(**ANN)
        assert not client.admits(**ANN)
        assert not client.admits(**ANN, interaction="another")
        goes_on = client.ask({**ANN, "interaction": carried})
        assert goes_on.overall_code == OK
        assert response_headers(goes_on)[INTERACTION] != carried, "a new token for the next call"


def test_forged_and_stolen_tokens_and_endless_new_interactions_gain_nothing(start_service: StartService) -> None:
    with client_of(start_service("throttler", throttle="oit:3")) as client:
        stolen = response_headers(client.ask({"user": "bob", "interaction": "journey"}))[INTERACTION]
        forged = "journey;token=" + base64.urlsafe_b64encode(bytes(44)).decode()
        unreadable = "journey;token=?"
        tried = [f"new {number}" for number in range(20)] + [stolen, forged, unreadable]
        admitted = [client.admits(user="ann", interaction=interaction) for interaction in tried]
        assert admitted == [True] * 3 + [False] * 20


def test_a_call_is_over_the_limit_if_one_of_its_descriptors_is(start_service: StartService) -> None:
    with client_of(start_service("throttler", throttle="oit:1")) as client:
        assert client.admits(user="ann")
        both = client.ask({"user": "bob", "interaction": "journey"}, {"user": "ann"})
        assert both.overall_code == OVER_LIMIT
        assert [status.code for status in both.statuses] == [OK, OVER_LIMIT]
        assert INTERACTION not in response_headers(both)
        assert not client.admits(user="bob", interaction="journey"), "a refused call opens no interaction"


@pytest.mark.parametrize(("domains", "code"), [("llm, other", OVER_LIMIT), ("llm, other,*", OK)])
def test_an_unknown_domain_is_what_the_configuration_says(start_service: StartService, domains: str, code: int) -> None:
    with client_of(start_service("throttler", domains=domains)) as client:
        assert client.ask(ANN, domain="fairlead").overall_code == code
        assert client.ask(ANN, domain="other").overall_code == OK


def test_a_mistake_of_the_configuration_is_an_error_that_names_the_entry(start_service: StartService) -> None:
    service = start_service("throttler")
    request = ratelimit_pb2.RateLimitRequest(domain="fairlead", descriptors=[{}])
    with client_of(service) as client:
        for descriptors, complaint in (
            ([], "descriptors: must not be empty"),
            ([{"user": "a"}, {"user": "a", "x": "y"}], "descriptors[1].entries[1].key: must be one of tenant, user,"),
            ([{"app": "chat"}], "descriptors[0].entries: names neither a tenant nor a user"),
            (
                [{"user": "a", "book": "all"}],
                "descriptors[0].entries[1].value: book: must be one of input, cached, output",
            ),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                client.ask(*descriptors)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert caught.value.details().startswith(complaint)
        for _ in range(2):
            request.descriptors[0].entries.add(key="user", value=b"ann")
        with pytest.raises(grpc.RpcError, match=r"descriptors\[0\].entries\[1\].key: user is given twice"):
            client.send(request)
    assert len(service.logged("Envoy's rate limit configuration is wrong")) == 5


def test_a_value_that_cannot_be_read_refuses_the_call_since_an_error_would_let_it_pass(
    start_service: StartService,
) -> None:
    with client_of(start_service("throttler")) as client:
        for entries, complaint in (
            ({"user": "a\tb"}, "descriptors[0]: user: must hold printable characters"),
            ({"user": "a", "app": "\udcff"}, "descriptors[0]: app: must be UTF-8, got b'\\xff'"),
            ({"tenant": "a/b"}, "descriptors[0]: tenant: expected a name without '/', got 'a/b'"),
            ({"user": "a", "interaction": ";end"}, "interaction: the id must have 1 to 128 characters, got 0"),
            ({"user": "a", "interaction": "x" * 129}, "interaction: the id must have 1 to 128 characters, got 129"),
            ({"user": "a", "stage": "-1"}, "stage: expected the number of a call, 0 for the first, got '-1'"),
            ({"user": "a", "request": "x" * 129}, "request: the id has at most 128 characters, got 129"),
            ({"user": "a", "interaction": "x;colour=red"}, "expected ID[;token=TOKEN][;end]"),
            ({"user": "a", "interaction": "x;token=" + "A" * 1368}, "the token has at most 1024 bytes, got 1026"),
        ):
            answer = client.ask(entries)
            assert answer.overall_code == OVER_LIMIT
            assert complaint in answer.raw_body.decode()


@pytest.mark.parametrize("secret", ["", "a secret of proxies"])
def test_malformed_requests_are_refused_and_do_not_flood_the_log(start_service: StartService, secret: str) -> None:
    service = start_service("throttler", proxy_secret=secret)
    metadata = (("x-fairlead-secret", secret),)
    with grpc.insecure_channel(service.address) as channel:
        call = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        for data, code in (
            (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
            (bytes(1 << 19), grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call(data, metadata=metadata, timeout=60, wait_for_ready=True)
            assert caught.value.code() is code
    with client_of(service, *metadata) as client:
        for number in range(150):
            client.ask(ANN, domain=f"domain {number}" * 100)
    assert 100 <= len(service.logged("Envoy's rate limit configuration is wrong")) <= 101
    assert max(len(line) for line in service.log.splitlines()) < 1000
    assert "Traceback" not in service.log


def test_only_a_proxy_with_the_secret_is_answered(start_service: StartService) -> None:
    service = start_service("throttler", proxy_secret="a secret of proxies")
    with client_of(service) as client, pytest.raises(grpc.RpcError, match="x-fairlead-secret"):
        client.ask(ANN)
    with client_of(service, ("x-fairlead-secret", "a secret of proxies")) as client:
        assert client.admits(**ANN)
        with pytest.raises(grpc.RpcError, match="names neither"):
            client.ask({})


def test_with_a_scheduler_limits_hold_while_a_pool_is_overloaded(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.02", max_running=1)
    limiter = stack.start("throttler", throttle="oit:1", scheduler=stack.addresses)
    with (
        grpc.insecure_channel(stack.gateway(throttle="none").address) as channel,
        client_of(limiter) as client,
    ):
        assert all(client.admits(user="ann") for _ in range(3)), "nothing is overloaded"
        request = inference_pb2.GenerateRequest(
            prompt=common_pb2.Prompt(text="hello"),
            sampling=common_pb2.SamplingParams(max_tokens=2000, ignore_eos=True),
        )
        stub = inference_pb2_grpc.InferenceStub(channel)
        queue = [stub.Generate(request, timeout=120) for _ in range(6)]
        eventually(lambda: any(line["models"] for line in limiter.logged("overload changed")), "overload")
        eventually(lambda: not client.admits(user="ann"), "the limit holds")
        [model] = limiter.logged("overload changed")[-1]["models"]
        assert not client.admits(user="ann", model=model)
        assert client.admits(user="ann", model="another model")
        for call in queue:
            call.cancel()
    assert limiter.terminate() == 0


TOKENS = """
limits: {user_tokens_per_minute: 1000}
apps:
  chat: {expected: {input: 200, output: 100}, stages: {1: {input: 20, output: 10}}}
"""


def test_calls_reserve_tokens_and_the_end_of_their_stream_settles_them(
    start_service: StartService, tmp_path: Path
) -> None:
    (tmp_path / "profiles.yaml").write_text(TOKENS)
    with client_of(start_service("throttler", throttle="oit:100", profiles=tmp_path / "profiles.yaml")) as client:
        calls = [client.ask({**ANN, "request": name}) for name in "abcd"]
        assert [answer.overall_code for answer in calls] == [OK, OK, OK, OVER_LIMIT]
        left = [response_headers(answer).get("x-ratelimit-remaining-tokens") for answer in calls]
        assert left == ["700", "400", "100", None]
        reason = calls[3].raw_body.decode()
        assert "user 'acme/ann' is over user_tokens_per_minute=1000: the call is expected to need 300 tokens" in reason
        assert calls[3].statuses[0].current_limit.requests_per_unit == 1000
        assert client.book(0, 0, **ANN, request="a") == 100, "nothing is known: what was reserved stays booked"
        assert client.book(10, 20, **ANN, request="a") == 370
        assert client.book(10, 20, **ANN, request="a") == 340, "without a reservation the use is booked"
        assert client.book(300, 100, **ANN, request="b") == 240, "more than was reserved"
        assert client.book(100, 0, tenant="acme", user="bob", app="chat", request="c") == 900, "not ann's call c"
        assert client.admits(**ANN, stage="1"), "30 tokens"
        assert client.book(0, 0, **ANN) == 210
        known = ratelimit_pb2.RateLimitRequest(domain="fairlead", descriptors=[descriptor(ANN, 111)])
        assert client.send(known).overall_code == OVER_LIMIT, "111 tokens of the prompt, and 100 of the output"
        known.descriptors[0].hits_addend.value = 110
        assert client.send(known).overall_code == OK


def test_a_keys_budget_of_money_counts_cached_tokens_cheaper_and_warns(
    start_service: StartService, tmp_path: Path
) -> None:
    text = """
prices: {default: {input: 10, cached: 1, output: 20}, large: {input: 100, cached: 10, output: 200}}
limits: {key_money_per_calendar_month: 0.01}
apps: {default: {expected: {input: 101}}}
"""
    (tmp_path / "profiles.yaml").write_text(text)
    call = {"tenant": "acme", "key": "k1", "model": "large"}
    with client_of(start_service("throttler", profiles=tmp_path / "profiles.yaml")) as client:
        assert client.ask({**call, "request": "a"}).overall_code == OVER_LIMIT, "101 tokens of 100 in a million"
        known = ratelimit_pb2.RateLimitRequest(
            domain="fairlead", descriptors=[descriptor({**call, "request": "a"}, 90)]
        )
        known.descriptors[0].hits_addend.value = 90
        admitted = client.send(known)
        assert admitted.overall_code == OK
        warning = response_headers(admitted)["x-fairlead-budget"]
        assert warning.startswith("key_money_per_calendar_month=0.01;used=90%;reset=")
        ends = [({**call, "request": "a", "book": kind}, tokens) for kind, tokens in (("input", 90), ("cached", 80))]
        request = ratelimit_pb2.RateLimitRequest(domain="fairlead", descriptors=[descriptor(*end) for end in ends])
        client.send(request)
        known.descriptors[0].hits_addend.value = 82
        assert client.send(known).overall_code == OK, "10 tokens of 100, 80 of 10: 0.0018 are used"
        assert client.send(known).overall_code == OVER_LIMIT
        assert not client.admits(**{**call, "key": "k2"}, stage="0"), "another key, with 101 tokens"


def test_the_hits_of_the_request_are_those_of_descriptors_without_their_own(
    start_service: StartService, tmp_path: Path
) -> None:
    (tmp_path / "profiles.yaml").write_text(TOKENS)
    with client_of(start_service("throttler", profiles=tmp_path / "profiles.yaml")) as client:
        asked, booked = {"app": "chat"}, {"app": "chat", "book": "output"}
        for number, (entries, of_request, of_descriptor, left) in enumerate(
            (
                (asked, 0, None, 700),
                (asked, 1, None, 700),  # one call, as 0 is: nothing is said of its tokens
                (asked, 50, None, 850),
                (asked, 50, 10, 890),
                (asked, 50, 0, 700),
                (booked, 1, None, 1000),
                (booked, 50, None, 950),
                (booked, 50, 10, 990),
            )
        ):
            user = f"user {number}"
            request = ratelimit_pb2.RateLimitRequest(domain="fairlead", hits_addend=of_request)
            request.descriptors.append(descriptor({"user": user, **entries}))
            if of_descriptor is not None:
                request.descriptors[0].hits_addend.value = of_descriptor
            assert client.send(request).overall_code == OK
            assert client.book(0, 0, user=user, app="chat") == left, (entries, of_request, of_descriptor)


def test_a_call_that_another_descriptor_refuses_reserves_nothing(start_service: StartService, tmp_path: Path) -> None:
    (tmp_path / "profiles.yaml").write_text(TOKENS)
    with client_of(start_service("throttler", throttle="oit:1", profiles=tmp_path / "profiles.yaml")) as client:
        assert client.admits(user="bob")
        assert client.ask({**ANN, "request": "a"}, {"user": "bob"}).overall_code == OVER_LIMIT
        assert client.book(0, 0, **ANN) == 1000


def test_20_users_of_a_tenant_are_admitted_as_often_as_the_one_of_another(
    start_service: StartService, tmp_path: Path
) -> None:
    (tmp_path / "profiles.yaml").write_text("limits: {user_per_minute: 6, tenant_per_minute: 6}")
    with client_of(start_service("throttler", profiles=tmp_path / "profiles.yaml")) as client:
        many = [client.admits(tenant="many", user=f"user {number % 20}") for number in range(40)]
        one = [client.admits(tenant="one", user="ann") for _ in range(40)]
        assert sum(many) == sum(one) == 6
        refused = client.ask({"tenant": "many", "user": "user 1"})
        assert "tenant 'many' is over tenant_per_minute=6" in response_headers(refused)["x-fairlead-reason"]
        assert refused.statuses[0].current_limit.requests_per_unit == 6


def shares_limits(service: Process) -> bool:
    with grpc.insecure_channel(service.address) as channel:
        request = health_pb2.HealthCheckRequest(service="shared-limits")
        status = health_pb2_grpc.HealthStub(channel).Check(request, timeout=60).status
    return bool(status == health_pb2.HealthCheckResponse.SERVING)


@pytest.mark.e2e
def test_instances_share_one_limit_and_go_on_by_themselves_without_redis(
    start_service: StartService, tmp_path: Path
) -> None:
    redis = RedisServer(tmp_path)
    services = [start_service("throttler", throttle="oit:8", redis=redis.url) for _ in range(4)]
    for service in services:
        eventually(partial(shares_limits, service), "limits are shared")
    admitted = []
    for number in range(24):
        with client_of(services[number % 4]) as client:
            admitted.append(client.admits(user="ann"))
    assert 1 <= admitted.count(True) <= 8, "counted together, and enforced"
    assert not any(admitted[-4:])
    redis.kill()
    for service in services:
        eventually(partial(lambda each: not shares_limits(each), service), "it counts by itself")
    with client_of(services[0]) as client:
        alone = [client.admits(user="bob") for _ in range(12)]
        assert 2 <= alone.count(True) <= 8, "its part of the limit, as large as it last heard"
        assert not alone[-1]
