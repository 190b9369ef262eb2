"""Interactions of programs that send no session: each request repeats what the gateway answered before."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from serving.interaction_header import HEADER, parse
from tests.services import SECRET
from tests.system.agents.cluster import KEY, NEXT_SECRET, TENANTS, Cluster
from tests.system.agents.engine import task
from tests.unit.gateway.http.http_client import CHAT, MESSAGES, RESPONSES, Answer, HttpClient
from throttler.core.interaction_tokens import InteractionKey, TokenSigner

pytestmark = pytest.mark.e2e

STEPS = (("look", {"place": "$FOUND"}), ("look", {"place": "quay"}), "high water")
SCHEMA: dict[str, Any] = {"type": "object"}
Turns = list[dict[str, Any]]


class Counted(NamedTuple):
    """The interaction of a call, and how many calls it had then."""

    interaction: str
    calls: int


class Api(NamedTuple):
    """How a program asks one of the APIs, and what it sends back after an answer with tool calls."""

    path: str
    body: Callable[[Turns], dict[str, Any]]
    results: Callable[[Any], Turns]  # of the calls in an answer, which come first


def chat_results(answer: Any) -> Turns:
    """The message of the assistant, and a result for each call."""
    message = answer["choices"][0]["message"]
    return [message, *({"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in message["tool_calls"])]


def message_results(answer: Any) -> Turns:
    """The message of the assistant, and one of the user with the results."""
    calls = [block for block in answer["content"] if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "x"} for call in calls]
    return [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]


def response_results(answer: Any) -> Turns:
    """The calls, and their results."""
    calls = answer["output"]
    return calls + [{"type": "function_call_output", "call_id": call["call_id"], "output": "x"} for call in calls]


FUNCTION = {"name": "look", "parameters": SCHEMA}
APIS = {
    "chat": Api(
        CHAT, lambda turns: {"messages": turns, "tools": [{"type": "function", "function": FUNCTION}]}, chat_results
    ),
    "messages": Api(
        MESSAGES,
        lambda turns: {"messages": turns, "max_tokens": 500, "tools": [{"name": "look", "input_schema": SCHEMA}]},
        message_results,
    ),
    "responses": Api(
        RESPONSES,
        lambda turns: {"input": turns, "store": False, "tools": [{"type": "function", **FUNCTION}]},
        response_results,
    ),
}


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Api:
    """Each API that has tools."""
    return APIS[request.param]


def ask(port: int, api: Api, turns: Turns, key: str = KEY, **headers: str) -> Answer:
    """Ask the gateway that answers at `port`."""
    body = json.dumps(api.body(turns)).encode()
    answer = HttpClient(port).request("POST", api.path, body, {"authorization": f"Bearer {key}", **headers})
    assert answer.status == 200, answer.body
    return answer


def counted(answer: Answer, key: str = KEY, secret: str = SECRET) -> Counted:
    """What the answer's token says."""
    found = parse(answer.headers[HEADER])
    claim = TokenSigner(secret).verify(InteractionKey(TENANTS[key], "default", found.id), found.token)
    assert claim is not None
    return Counted(found.id, claim.stage)


def begun_otherwise(turns: Turns) -> Turns:
    """The same, but for the beginning, so that only the ids say what it continues."""
    return [{**turns[0], "content": "Now: " + turns[0]["content"]}, *turns[1:]]


def test_a_task_is_one_interaction(quick_cluster: Cluster, api: Api) -> None:
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    answers = [ask(quick_cluster.port, api, turns)]
    for _ in STEPS[1:]:
        turns += api.results(answers[-1].json)
        answers.append(ask(quick_cluster.port, api, turns))
    assert b"high water" in answers[-1].body
    name = counted(answers[0]).interaction
    assert [counted(answer) for answer in answers] == [(name, 1), (name, 2), (name, 3)]
    another = ask(quick_cluster.port, api, turns[:1])
    assert counted(another).interaction != name, "a task of its own"


def test_a_shortened_conversation_continues_the_interaction(quick_cluster: Cluster, api: Api) -> None:
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    first = ask(quick_cluster.port, api, turns)
    later = ask(quick_cluster.port, api, turns + api.results(first.json))
    shortened = ask(quick_cluster.port, api, turns + api.results(later.json))
    assert counted(shortened) == (counted(first).interaction, 3)


def test_ids_count_for_the_client_that_got_them(quick_cluster: Cluster, api: Api) -> None:
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    first = ask(quick_cluster.port, api, turns)
    turns += api.results(first.json)
    assert counted(ask(quick_cluster.port, api, turns, "other"), "other").interaction != counted(first).interaction
    forged = begun_otherwise(json.loads(re.sub(r'id": "\w{9}"', 'id": "012345678"', json.dumps(turns))))
    assert forged[1:] != turns[1:]
    assert counted(ask(quick_cluster.port, api, forged)).calls == 1


def test_a_session_that_is_named_counts_first(quick_cluster: Cluster, api: Api) -> None:
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    turns += api.results(ask(quick_cluster.port, api, turns).json)
    assert counted(ask(quick_cluster.port, api, turns, **{"x-session-id": api.path})) == (api.path, 1)
    assert counted(ask(quick_cluster.port, api, turns, **{HEADER: f"chosen {api.path}"})) == (f"chosen {api.path}", 1)


def test_gateways_of_a_cluster_know_each_others_ids(quick_cluster: Cluster, api: Api) -> None:
    _, port = quick_cluster.start_gateway()
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    first = ask(quick_cluster.port, api, turns)
    turns += api.results(first.json)
    name = counted(first).interaction
    second = ask(port, api, turns)
    assert counted(second) == (name, 1), "each gateway counts what it has seen"
    turns += api.results(second.json)
    assert counted(ask(quick_cluster.port, api, turns)) == (name, 2)
    assert counted(ask(port, api, turns, **{HEADER: first.headers[HEADER]})) == (name, 2)


def test_ids_outlive_their_secret_as_long_as_it_is_accepted(quick_cluster: Cluster) -> None:
    """While a cluster's secret is replaced, gateways sign with either one and accept both."""
    chat = APIS["chat"]
    _, before = quick_cluster.start_gateway(accepted_secret=NEXT_SECRET)
    _, during = quick_cluster.start_gateway(secret=NEXT_SECRET, accepted_secret=SECRET)
    _, after = quick_cluster.start_gateway(secret=NEXT_SECRET)
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    first = ask(quick_cluster.port, chat, turns)
    old, name = turns + chat.results(first.json), counted(first).interaction
    assert counted(ask(before, chat, old)).interaction == name
    second = ask(during, chat, old)
    assert counted(second, secret=NEXT_SECRET).interaction == name
    forgotten = ask(after, chat, old)
    assert counted(forgotten, secret=NEXT_SECRET).interaction != name, "another secret's ids name nothing"
    new = [*turns, *chat.results(second.json)]
    assert counted(ask(before, chat, new)).interaction == name
    assert counted(ask(after, chat, new), secret=NEXT_SECRET).interaction == name
    assert counted(ask(quick_cluster.port, chat, begun_otherwise(new))).interaction != name


PLAIN: dict[str, Api] = {
    "chat": Api(
        CHAT,
        lambda turns: {"messages": turns, "max_tokens": 8},
        lambda answer: [answer["choices"][0]["message"]],
    ),
    "messages": Api(
        MESSAGES,
        lambda turns: {"messages": turns, "max_tokens": 8},
        lambda answer: [{"role": "assistant", "content": answer["content"]}],
    ),
    "responses": Api(
        RESPONSES,
        lambda turns: {"input": turns, "max_output_tokens": 8, "store": False},
        lambda answer: answer["output"],
    ),
}


@pytest.fixture(params=PLAIN)
def plain(request: pytest.FixtureRequest) -> Api:
    """Each API, without tools."""
    return PLAIN[request.param]


def user(text: str) -> Turns:
    """What the user says."""
    return [{"role": "user", "content": text}]


def test_a_chat_without_tools_is_one_interaction_from_its_second_call_on(quick_cluster: Cluster, plain: Api) -> None:
    turns = user(f"at low water, by {plain.path}")
    first = ask(quick_cluster.port, plain, turns)
    assert HEADER not in first.headers, "most chats have one call"
    turns += plain.results(first.json) + user("and then?")
    second = ask(quick_cluster.port, plain, turns)
    name = counted(second).interaction
    turns += plain.results(second.json) + user("and after that?")
    assert counted(ask(quick_cluster.port, plain, turns)) == (name, 2)
    retold = [
        {"role": "assistant", "content": "thought about it"} if "content" in each else each for each in turns[-2:-1]
    ]
    edited = turns[:-2] + retold + turns[-1:]
    assert counted(ask(quick_cluster.port, plain, edited)) == (name, 3), "a program may shorten the last answer"
    assert HEADER not in ask(quick_cluster.port, plain, turns, "other").headers, "another client asked nothing"


def test_questions_after_the_same_examples_are_no_conversation(quick_cluster: Cluster) -> None:
    chat = PLAIN["chat"]
    examples = [*user("ebb?"), {"role": "assistant", "content": "falls"}]
    for question in ("flood?", "slack?", "flood?"):
        assert HEADER not in ask(quick_cluster.port, chat, [*examples, *user(question)]).headers


def test_chats_that_begin_alike_are_apart_after_their_first_answers(quick_cluster: Cluster) -> None:
    chat, turns = PLAIN["chat"], user("the same question")
    ask(quick_cluster.port, chat, turns)
    names = set()
    for said in ("rises", "falls"):
        mine = [
            {"role": "system", "content": f"It is {said}."},
            *turns,
            {"role": "assistant", "content": said},
            *user("on?"),
        ]
        second = counted(ask(quick_cluster.port, chat, mine))
        third = counted(ask(quick_cluster.port, chat, [*mine, {"role": "assistant", "content": "yes"}, *user("so?")]))
        assert second.interaction == third.interaction
        assert (second.calls, third.calls) == (1, 2)
        names.add(second.interaction)
    assert len(names) == 2


def test_a_chat_goes_on_with_tools(quick_cluster: Cluster, api: Api) -> None:
    plain = PLAIN[next(name for name, each in APIS.items() if each is api)]
    turns = user(f"before tools, by {plain.path}")
    turns += plain.results(ask(quick_cluster.port, plain, turns).json) + user(task(*STEPS))
    first = ask(quick_cluster.port, api, turns)
    turns += api.results(first.json)
    assert counted(ask(quick_cluster.port, api, turns)) == (counted(first).interaction, 2)
