"""Interactions of programs that send no session, behind several gateways with a Redis in common."""

import json
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest
from redis import Redis

from gateway.core.seen_calls import SeenCall, message_of
from gateway.shared_interactions import CHANNEL
from serving.interaction_header import HEADER
from tests.redis_server import RedisServer
from tests.services import Process, eventually
from tests.system.agents.cluster import KEY, TENANTS, Cluster
from tests.system.agents.engine import task
from tests.system.agents.test_interactions import PLAIN, STEPS, Api, Turns, api, ask, counted, plain, user
from throttler.core.interaction_tokens import InteractionKey, TokenClaim, TokenSigner

pytestmark = pytest.mark.e2e
__all__ = ["api", "plain"]  # fixtures
NUMBERS = count()


class Pair(NamedTuple):
    """Two gateways of one cluster, and their Redis."""

    gateways: list[Process]
    ports: list[int]
    redis: RedisServer


@pytest.fixture(scope="module")
def pair(quick_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both are told of each other's calls."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    gateways, ports = zip(*(quick_cluster.start_gateway(redis=server.url) for _ in range(2)), strict=True)
    eventually(lambda: subscribers(server.client) == 2, "both follow the channel")
    yield Pair(list(gateways), list(ports), server)
    server.kill()


def subscribers(redis: Redis) -> int:
    return int(redis.pubsub_numsub(CHANNEL)[0][1])


def tell(pair: Pair, teller: int, listener: int) -> None:
    """Wait until a gateway knows of all calls that the other one has had: it is told of them in their order."""
    turns = user(f"marker {next(NUMBERS)}")
    ask(pair.ports[teller], PLAIN["chat"], turns)
    turns += [{"role": "assistant", "content": "yes"}, *user("then?")]
    eventually(lambda: HEADER in ask(pair.ports[listener], PLAIN["chat"], turns).headers, "it is told of a chat")


def test_a_chat_without_tools_goes_on_at_every_gateway(pair: Pair, plain: Api) -> None:
    turns = user(f"at low water, by way of {plain.path}")
    first = ask(pair.ports[0], plain, turns)
    assert HEADER not in first.headers, "most chats have one call"
    tell(pair, 0, 1)
    turns += plain.results(first.json) + user("and then?")
    assert HEADER not in ask(pair.ports[1], plain, turns, "other").headers, "another client asked nothing"
    second = ask(pair.ports[1], plain, turns)
    tell(pair, 1, 0)
    turns += plain.results(second.json) + user("and after that?")
    third = ask(pair.ports[0], plain, turns)
    assert counted(third) == (counted(second).interaction, 2)


def test_a_task_with_tools_is_one_interaction_in_progress_at_every_gateway(pair: Pair, api: Api) -> None:
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    counts = []
    for gateway in (0, 1, 0):
        answer = ask(pair.ports[gateway], api, turns)
        tell(pair, gateway, 1 - gateway)
        counts.append(counted(answer))
        if len(counts) < len(STEPS):
            turns += api.results(answer.json)
    name = counts[0].interaction
    assert counts == [(name, 1), (name, 2), (name, 3)]


def test_a_session_is_one_interaction_in_progress_at_every_gateway(pair: Pair, plain: Api) -> None:
    session = {"x-session-id": f"ebb of {plain.path}"}
    for calls, gateway in enumerate((0, 1, 1, 0), 1):
        answer = ask(pair.ports[gateway], plain, user("hello"), **session)
        assert counted(answer) == (session["x-session-id"], calls)
        tell(pair, gateway, 1 - gateway)


def test_messages_that_others_write_into_the_channel_are_verified(pair: Pair) -> None:
    chat, name = PLAIN["chat"], "forged"
    key = InteractionKey(TENANTS[KEY], "default", name)
    forged = TokenSigner("a guess").sign(key, TokenClaim(0.0, 50)).hex()
    call = SeenCall(TENANTS[KEY], "default", name, forged, "")
    lines = [
        message_of([call]),
        b"",
        b"[",
        b"[" * 100_000,
        b'[["too", "few"]]',
        json.dumps([[*call[:3], "no digits", ""]]).encode(),
        json.dumps([[*call[:3], "", "x" * 10_000]]).encode(),
        b'{"version": 2}',
        b"\xff",
    ]
    for line in lines:
        assert pair.redis.client.publish(CHANNEL, b"stranger " + line) == 2
    unreadable = "another gateway's interactions cannot be read"
    eventually(
        lambda: len(pair.gateways[1].logged(unreadable)) == len(lines) - 1, "each is refused, none ends a gateway"
    )
    assert counted(ask(pair.ports[1], chat, user("hello"), **{"x-session-id": name})) == (name, 1)


def noted(pair: Pair) -> list[int]:
    """How often the first gateway has logged that Redis is out of reach, and that it is not."""
    return [len(pair.gateways[0].logged(line)) for line in ("interactions are not shared", "interactions are shared")]


def test_without_redis_each_gateway_knows_what_it_was_asked(pair: Pair, plain: Api) -> None:
    before = noted(pair)
    pair.redis.kill()
    try:
        turns = user(f"at high water, by way of {plain.path}")
        first = ask(pair.ports[0], plain, turns)
        turns += plain.results(first.json) + user("and then?")
        second = ask(pair.ports[0], plain, turns)
        assert counted(second).calls == 1
        assert HEADER not in ask(pair.ports[1], plain, turns).headers
        eventually(lambda: noted(pair)[0] > before[0], "operators are told")
    finally:
        pair.redis.start()
    eventually(lambda: subscribers(pair.redis.client) == 2, "both follow the channel anew")
    tell(pair, 0, 1)
    assert noted(pair) == [number + 1 for number in before], "once each, however often it is tried"
    turns += plain.results(second.json) + user("and after that?")
    assert counted(ask(pair.ports[1], plain, turns)) == (counted(second).interaction, 2), "what waited is told, too"
