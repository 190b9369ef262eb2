"""Interactions of agents that know nothing of Fairlead: by the session that they name anyway."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.core.continued_chats import ToolCallIds
from gateway.core.session_tree import Session
from gateway.http.common_fields import HEADERS, session_of
from serving.interaction_header import HEADER, parse
from serving.names import MAX_NAME
from tests.services import SECRET, Process, Stack, eventually
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, HELLO, TEXT, Answer, HttpClient
from throttler.core.interaction_tokens import InteractionKey, TokenSigner

ID = "0b7d4e4c-5b1f-4f0c-9c35-7a3d1f6f2a10"
PARENT = "7d1cf0f8-1f9e-4f3e-8f57-0d2b1c5a9e44"
CLAUDE = {"user_id": json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": ID})}
CLAUDE_BEFORE = {"user_id": f"user_{'d' * 64}_account__session_{ID}"}
KAPPA = 3
ANSWERS = 8
TOOLS = [{"type": "function", "function": {"name": "look"}}]
ROOT = Path(__file__).parents[4]

# The rows of the table in docs/http.md: the headers that a client sends, and fields of its body.
CLIENTS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "claude code": ({"X-Claude-Code-Session-Id": ID}, {"metadata": CLAUDE}),
    "claude code, the body alone": ({}, {"metadata": CLAUDE}),
    "claude code, before": ({}, {"metadata": CLAUDE_BEFORE}),
    "claude code, through litellm": ({}, {"user": CLAUDE["user_id"]}),
    "codex": ({"session-id": ID, "thread-id": ID}, {"prompt_cache_key": ID}),
    "codex, a sub-agent": ({"session-id": ID, "thread-id": "child", "x-codex-parent-thread-id": PARENT}, {}),
    "codex, before": ({"session_id": ID}, {"prompt_cache_key": ID}),
    "codex, before, a sub-agent": ({"session_id": "child", "x-codex-parent-thread-id": ID}, {}),
    "opencode": ({"x-session-affinity": ID, "X-Session-Id": ID}, {"prompt_cache_key": ID}),
    "opencode, a sub-agent": ({"X-Session-Id": "child", "x-parent-session-id": ID}, {"prompt_cache_key": "child"}),
    "opencode's provider": ({"x-opencode-session": ID}, {}),
    "opencode's provider, a sub-agent": ({"x-opencode-session": "child", "x-parent-session-id": ID}, {}),
    "Open WebUI": ({"x-openwebui-chat-id": ID}, {}),
    "llm-d": ({"x-llm-d-inference-fairness-id": ID}, {}),
    "openai": ({}, {"prompt_cache_key": ID}),
}


def post(
    http: HttpClient, headers: dict[str, str], fields: dict[str, Any] | None = None, user: str = "", path: str = CHAT
) -> Answer:
    """One call of one token."""
    prompt = {"messages": HELLO} if path == CHAT else {"prompt": "hello"}
    body = {**prompt, "max_tokens": 1, **(fields or {})}
    return http.request("POST", path, json.dumps(body).encode(), {**headers, "x-fairlead-user": user})


def calls(answer: Answer, user: str) -> tuple[str, int]:
    """The interaction that a call counted in, and how many calls it had then, as the answer's token says."""
    interaction = parse(answer.headers[HEADER])
    client = f"default/{user}" if user else "default"
    claim = TokenSigner(SECRET).verify(InteractionKey(client, "default", interaction.id), interaction.token)
    assert claim is not None
    return interaction.id, claim.stage


@pytest.mark.parametrize("client", CLIENTS)
def test_headers_and_fields_of_clients_name_their_interaction(shared: tuple[Process, HttpClient], client: str) -> None:
    _, http = shared
    headers, fields = CLIENTS[client]
    assert [calls(post(http, headers, fields, client), client) for _ in range(2)] == [(ID, 1), (ID, 2)]


def test_the_documents_list_the_headers_in_their_order() -> None:
    rows = [
        f"| `{header.name}`, parent `{header.parent}` |" if header.parent else f"| `{header.name}` |"
        for header in HEADERS
    ]
    places = [(ROOT / "docs/http.md").read_text().find(row) for row in rows]
    assert -1 not in places
    assert places == sorted(places)


def test_completions_have_sessions_too(http: HttpClient) -> None:
    assert calls(post(http, {}, {"prompt_cache_key": "text"}, path=TEXT), "") == ("text", 1)


def test_the_whole_tree_of_agents_is_one_interaction(http: HttpClient) -> None:
    chain = [{"x-session-id": "main"}]
    chain += [
        {"x-session-id": child, "x-parent-session-id": parent}
        for child, parent in (("child", "main"), ("grandchild", "child"), ("child", "main"))
    ]
    counted = [calls(post(http, headers, user="tree"), "tree") for headers in chain]
    assert counted == [("main", number) for number in (1, 2, 3, 4)]
    assert calls(post(http, chain[2], user="stranger"), "stranger") == ("child", 1), "others' sessions are not known"


def test_an_interaction_that_is_named_as_such_counts_first(http: HttpClient) -> None:
    headers = {HEADER: "chosen", "x-session-id": "child", "x-parent-session-id": "main"}
    assert calls(post(http, headers, {"metadata": CLAUDE}, "first"), "first") == ("chosen", 1)


@pytest.mark.parametrize("name", ["", " ", "x" * (MAX_NAME + 1), "a;end", "caf\u00e9", "two\tparts"])
def test_ids_that_cannot_be_shown_are_none(name: str) -> None:
    assert session_of({"x-session-id": name}, "") is None
    assert session_of({"session-id": name, "x-session-id": "other"}, "") == Session("other")
    assert session_of({"x-session-id": "other", "x-parent-session-id": name}, name) == Session("other")
    assert session_of({}, name) is None


def test_under_overload_sessions_go_on_and_invented_ones_gain_nothing(stack: Stack, tmp_path: Path) -> None:
    """A fresh id is a call like any other; whoever stays with one, or names parents, has the protected calls."""
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text(f"limits: {{kappa: {KAPPA}}}\n")
    # Answers of 200 s each keep the worker busy for longer than the test can take.
    stack.worker("a", engine="fake:0.1", max_running=1)
    gateway, http = serving(stack, throttle="oit:1", profiles=profiles)
    for user in ("agent", "parent"):
        assert post(http, {"x-session-id": "main"}, user=user).status == 200
    opened = calls(post(http, {}, {"tools": TOOLS}, user="caller"), "caller")
    made = ToolCallIds(SECRET).make("default/caller", opened[0], "request", 0)
    repeated = [*HELLO, {"role": "tool", "tool_call_id": made, "content": "low water"}]
    filling = {"prompt": ["x"] * ANSWERS, "max_tokens": 2000, "ignore_eos": True}
    with http.begin(TEXT, filling, x_fairlead_user="filler"):
        eventually(lambda: any(line["models"] for line in gateway.logged("overload changed")), "overload")
        # The first answers are an overload already, while the last ones are still on their way.
        eventually(lambda: stack.requests() == ANSWERS, "all answers are at the worker")
        inventor = [lets_in(stack, http, "inventor", {"x-session-id": f"{n}"}) for n in range(3)]
        agent = [lets_in(stack, http, "agent", {"x-session-id": "main"}) for _ in range(KAPPA + 2)]
        parent = [
            lets_in(stack, http, "parent", {"x-session-id": f"child {n}", "x-parent-session-id": "main"})
            for n in range(KAPPA + 2)
        ]
        caller, forger = (
            [lets_in(stack, http, user, {}, {"tools": TOOLS, "messages": repeated}) for _ in range(2)]
            for user in ("caller", "forger")
        )
    assert inventor == [True, False, False], "the one call that everybody has"
    assert (caller, forger) == ([True, True], [True, False]), "the ids were made for the caller"
    assert agent == parent == [True] * KAPPA + [False] * 2


def lets_in(
    stack: Stack, http: HttpClient, user: str, headers: dict[str, str], fields: dict[str, Any] | None = None
) -> bool:
    """Whether a call is let in under overload, where it waits behind others, or refused."""
    waiting = stack.requests()
    body = {"messages": HELLO, "max_tokens": 1, "stream": True, **(fields or {})}
    with http.begin(CHAT, body, x_fairlead_user=user, **headers) as connection:
        connection.settimeout(0.05)
        while stack.requests() == waiting:
            try:
                assert connection.recv(12) == b"HTTP/1.1 429"
            except TimeoutError:
                continue
            return False
    eventually(lambda: stack.requests() == waiting, "it is gone")
    return True
