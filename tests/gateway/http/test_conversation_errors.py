"""What is wrong in a request about conversations is refused with the field, the limit and the value."""

import json
import re

import pytest

from fairlead.errors import TooLong
from fairlead.v1 import scheduler_pb2
from gateway.core.response_store import ResponseStore
from gateway.core.stored_conversation import StoredConversation, StoredItem
from gateway.credentials import Credentials
from gateway.http.conversations import MAX_ITEMS, MAX_LENGTH, Conversations
from gateway.http.responses import ResponseEndpoints
from gateway.tenants import CallerIdentity
from tests.gateway.http.http_client import CONVERSATIONS, HELLO, HttpClient
from tests.gateway.http.test_conversations import ask, create

CALL = {"type": "function_call", "call_id": "c1"}
IMAGE = {"type": "input_image", "image_url": "x"}
TOO_MANY = [{"role": "user"}] * (MAX_ITEMS + 1)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "", 405),
        ("PUT", "/{id}", 405),
        ("DELETE", "/{id}/items", 405),
        ("POST", "/{id}/items/msg_1", 405),
        ("GET", "/conv_1", 404),
        ("GET", "/", 405),
        ("GET", "/{id}/items/msg_1", 404),
        ("DELETE", "/{id}/items/msg_1", 404),
        ("GET", "/{id}/things", 404),
        ("GET", "/{id}/items/msg_1/content", 404),
    ],
)
def test_what_there_is_not(http: HttpClient, method: str, path: str, status: int) -> None:
    answer = http.request(method, CONVERSATIONS + path.format(id=create(http)), b"{}", {})
    assert (answer.status, answer.error["param"]) == (status, None), answer.body


@pytest.mark.parametrize(
    ("query", "param", "limit", "value"),
    [
        ("limit=0", "limit", "from 1 to 100", "got '0'"),
        ("limit=101", "limit", "from 1 to 100", "got '101'"),
        ("limit=many", "limit", "from 1 to 100", "got 'many'"),
        ("limit=%EF%BC%91", "limit", "from 1 to 100", "got '\uff11'"),
        (f"limit={'9' * 5000}", "limit", "from 1 to 100", f"got '{'9' * 64}'"),
        ("order=up", "order", "asc, desc", "got 'up'"),
        ("after=msg_1", "after", "has no item", "'msg_1'"),
    ],
)
def test_bad_pages(http: HttpClient, query: str, param: str, limit: str, value: str) -> None:
    answer = http.get(f"{CONVERSATIONS}/{create(http)}/items?{query}")
    assert (answer.status, answer.error["param"]) == (400, param), answer.body
    assert {part for part in (limit, value) if part in answer.error["message"]} == {limit, value}


@pytest.mark.parametrize(
    ("path", "body", "param", "limit", "value"),
    [
        ("", [], None, "Expected `object`", "got `array`"),
        ("", {"metadata": {"a": 1}}, "metadata[...]", "Expected `str`", "got `int`"),
        ("", {"metadata": "x"}, "metadata", "Expected `object", "got `str`"),
        ("", {"items": "x"}, "items", "Expected `array", "got `str`"),
        ("", {"items": [{"content": "x"}]}, "items[0].role", "a message needs a role", "items[0]"),
        ("", {"items": [*HELLO, {"role": "robot"}]}, "items[1].role", "Invalid enum value", "'robot'"),
        ("", {"items": TOO_MANY}, "items", "at most 10000 items", "got 10001"),
        ("/{id}", {}, None, "required field", "`metadata`"),
        ("/{id}", {"metadata": "x"}, "metadata", "Expected `object", "got `str`"),
        ("/{id}/items", {}, None, "required field", "`items`"),
        ("/{id}/items", {"items": TOO_MANY}, "items", "at most 10000 items", "got 10001"),
        ("/{id}/items", {"items": [{"type": "item_reference"}]}, "items[0].type", "cannot be read", "'item_reference'"),
        ("/{id}/items", {"items": [{"role": "user", "content": [IMAGE]}]}, "items[0].content[0].type", "", "image"),
        ("/{id}/items", {"items": [CALL]}, "items[0].name", "needs the name of a function", "items[0]"),
    ],
)
def test_bad_bodies(http: HttpClient, path: str, body: object, param: str | None, limit: str, value: str) -> None:
    answer = http.post(CONVERSATIONS + path.format(id=create(http)), json.dumps(body).encode())
    assert (answer.status, answer.error["param"]) == (400, param), answer.body
    assert {part for part in (limit, value) if part in answer.error["message"]} == {limit, value}, answer.body


@pytest.mark.parametrize(
    ("fields", "status", "code", "value"),
    [
        ({"conversation": "conv_1"}, 404, "conversation_not_found", "'conv_1'"),
        ({"conversation": {"id": "conv_1"}}, 404, "conversation_not_found", "'conv_1'"),
        ({"conversation": ""}, 404, "conversation_not_found", "''"),
        ({"conversation": {}}, 400, "invalid_request", "required field `id`"),
        ({"conversation": 5}, 400, "invalid_request", "got `int`"),
        (
            {"conversation": "conv_1", "previous_response_id": "resp_1"},
            400,
            "invalid_request",
            "together with previous_response_id",
        ),
    ],
)
def test_a_conversation_that_a_response_cannot_continue(
    http: HttpClient, fields: dict[str, object], status: int, code: str, value: str
) -> None:
    answer = ask(http, None, **fields)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, "conversation")
    assert value in answer.error["message"]


def test_the_items_of_a_conversation_have_so_many_bytes(http: HttpClient) -> None:
    half = [{"role": "user", "content": "x" * (MAX_LENGTH // 2)}]
    conversation = create(http, items=half)
    answer = http.post(f"{CONVERSATIONS}/{conversation}/items", {"items": half})
    assert (answer.status, answer.error["param"]) == (400, "items")
    described = re.fullmatch(
        r"items: the items of a conversation have at most 4194304 bytes, got (\d+)", answer.error["message"]
    )
    assert described, answer.body
    assert int(described[1]) > MAX_LENGTH


def test_a_response_adds_nothing_beyond_the_bytes_of_a_conversation() -> None:
    store = ResponseStore(2 * MAX_LENGTH, 1e9)
    conversations = Conversations(store, lambda user, credentials: pytest.fail("nobody asks"))
    full = StoredConversation(id="conv_1", client="ann", created=1, metadata=b"{}")
    conversations.keep(full, "items")
    most = StoredItem("msg_1", b"x" * MAX_LENGTH)
    assert conversations.extend("conv_1", [most])
    assert not conversations.extend("conv_1", [StoredItem("msg_2", b"x")])
    assert store.find("conv_1", 0.0) == full.extended([most])
    assert not conversations.extend("conv_2", [])


@pytest.mark.parametrize("items", [[StoredItem("msg_1", b"unread")] * 3, [StoredItem("msg_1", b"unread", 21)]])
def test_a_conversation_that_is_too_long_for_a_model_is_not_read(items: list[StoredItem]) -> None:
    store = ResponseStore(MAX_LENGTH, 1e9)
    identity = CallerIdentity("ann", "ann", 1.0)
    conversations = Conversations(store, lambda user, credentials: identity)
    empty = StoredConversation(id="conv_1", client="ann", created=1, metadata=b"{}")
    conversations.keep(empty.extended(items), "items")
    model = scheduler_pb2.ModelInfo(max_prompt_tokens=2, longest_token=10)
    read = ResponseEndpoints(store, conversations, lambda name: model).api(Credentials())
    with pytest.raises(TooLong, match="at most 2 prompt tokens"):
        read(b'{"input": "x", "conversation": "conv_1"}')


def test_a_conversation_has_so_many_items(http: HttpClient) -> None:
    conversation = create(http, items=TOO_MANY[1:])
    answers = [
        http.post(f"{CONVERSATIONS}/{conversation}/items", {"items": HELLO}),
        ask(http, conversation=conversation),
    ]
    for answer, param in zip(answers, ("items", "input"), strict=True):
        assert (answer.status, answer.error["param"]) == (400, param)
        assert answer.error["message"] == f"{param}: a conversation has at most 10000 items, got 10001"
