"""Interactions of programs that send no session: each request repeats the calls that the gateway told before."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from serving.interaction_header import HEADER, parse
from tests.agents.cluster import KEY, TENANTS, Cluster
from tests.agents.engine import task
from tests.gateway.http.http_client import CHAT, MESSAGES, RESPONSES, Answer, HttpClient
from tests.services import SECRET
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


def ask(cluster: Cluster, api: Api, turns: Turns, key: str = KEY, **headers: str) -> Answer:
    """Ask with tools."""
    body = json.dumps(api.body(turns)).encode()
    answer = HttpClient(cluster.port).request("POST", api.path, body, {"authorization": f"Bearer {key}", **headers})
    assert answer.status == 200, answer.body
    return answer


def counted(answer: Answer, key: str = KEY) -> Counted:
    """What the answer's token says."""
    found = parse(answer.headers[HEADER])
    claim = TokenSigner(SECRET).verify(InteractionKey(TENANTS[key], "default", found.id), found.token)
    assert claim is not None
    return Counted(found.id, claim.stage)


def test_a_task_is_one_interaction(quick_cluster: Cluster, api: Api) -> None:
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    answers = [ask(quick_cluster, api, turns)]
    for _ in STEPS[1:]:
        turns += api.results(answers[-1].json)
        answers.append(ask(quick_cluster, api, turns))
    assert b"high water" in answers[-1].body
    name = counted(answers[0]).interaction
    assert [counted(answer) for answer in answers] == [(name, 1), (name, 2), (name, 3)]
    another = ask(quick_cluster, api, turns[:1])
    assert counted(another).interaction != name, "a task of its own"


def test_what_is_left_of_a_conversation_continues_it(quick_cluster: Cluster, api: Api) -> None:
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    first = ask(quick_cluster, api, turns)
    later = ask(quick_cluster, api, turns + api.results(first.json))
    shortened = ask(quick_cluster, api, turns + api.results(later.json))
    assert counted(shortened) == (counted(first).interaction, 3)


def test_ids_count_for_the_client_that_got_them(quick_cluster: Cluster, api: Api) -> None:
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    first = ask(quick_cluster, api, turns)
    turns += api.results(first.json)
    assert counted(ask(quick_cluster, api, turns, "other"), "other").interaction != counted(first).interaction
    forged = json.loads(re.sub(r'id": "\w{9}"', 'id": "012345678"', json.dumps(turns)))
    assert forged != turns
    assert counted(ask(quick_cluster, api, forged)).calls == 1


def test_a_session_that_is_named_counts_first(quick_cluster: Cluster, api: Api) -> None:
    turns: Turns = [{"role": "user", "content": task(*STEPS)}]
    turns += api.results(ask(quick_cluster, api, turns).json)
    assert counted(ask(quick_cluster, api, turns, **{"x-session-id": api.path})) == (api.path, 1)
    assert counted(ask(quick_cluster, api, turns, **{HEADER: f"chosen {api.path}"})) == (f"chosen {api.path}", 1)


def test_a_call_without_tools_is_in_no_interaction(quick_cluster: Cluster) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    assert HEADER not in HttpClient(quick_cluster.port).post(CHAT, body, authorization=f"Bearer {KEY}").headers
