"""Conversations: what their items are, who may read them, and which responses are added to them."""

import re
from typing import Any

from gateway.core.response_store import OVERHEAD
from tests.gateway.http.clients import run
from tests.gateway.http.conftest import serving
from tests.gateway.http.http_client import CONVERSATIONS, HELLO, RESPONSES, Answer, HttpClient, by
from tests.gateway.http.test_openai_client import CLIENT
from tests.services import Stack, eventually

BODY = {"input": "and then?", "max_output_tokens": 3, "ignore_eos": True, "seed": 3}
SAID = {"type": "message", "role": "assistant", "content": "yes"}
CALLED = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RETURNED = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "42"}]}
PROGRAM = """
import sys
import openai
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItemList, Message
from openai.types.responses import Response

client = openai.OpenAI(base_url=sys.argv[1], api_key="any", max_retries=0)
body = {"model": "tiny", "max_output_tokens": 4, "extra_body": {"ignore_eos": True, "seed": 1}}
user = {"type": "message", "role": "user", "content": "hello"}
called = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
returned = {"type": "function_call_output", "call_id": "c1", "output": "42"}


def checked(kind, model):
    fields = model.model_dump(exclude_unset=True)
    assert isinstance(model, kind) and set(model.model_extra) <= {"store"}, model  # which a response has
    kind.model_validate(fields, strict=True)
    return model


created = checked(Conversation, client.conversations.create(items=[user], metadata={"topic": "tides"}))
assert created.metadata == {"topic": "tides"}
assert checked(Conversation, client.conversations.retrieve(created.id)) == created
changed = checked(Conversation, client.conversations.update(created.id, metadata={"topic": "moons"}))
assert changed.metadata == {"topic": "moons"} and changed.created_at == created.created_at
[first] = client.conversations.items.list(created.id)
checked(Message, first)
assert (first.role, first.status, first.content[0].type, first.content[0].text) == (
    "user", "completed", "input_text", "hello"
)
assert client.conversations.items.retrieve(first.id, conversation_id=created.id) == first

said = checked(Response, client.responses.create(**body, input="and then?", conversation=created.id))
assert said.conversation.id == created.id
told = [user, {"role": "user", "content": "and then?"}]
again = client.responses.create(**body, input=told, store=False)
assert (again.output_text, again.usage.input_tokens) == (said.output_text, said.usage.input_tokens)
*_, last = client.responses.create(**body, input=[called, returned], conversation={"id": created.id}, stream=True)
assert last.response.conversation.id == created.id
told += [{"role": "assistant", "content": said.output_text}, called, returned]
again = client.responses.create(**body, input=told, store=False)
assert again.output_text == last.response.output_text, "the call is one of the assistant's last message"
assert again.conversation is None

items = list(client.conversations.items.list(created.id, order="asc", limit=2))
assert [item.type for item in items] == [
    "message", "message", "message", "function_call", "function_call_output", "message"
]
assert items[2].to_dict() == said.output[0].to_dict()
assert items[5].content[0].text == last.response.output_text
assert list(client.conversations.items.list(created.id, limit=4)) == items[::-1], "pages follow each other"
added = checked(ConversationItemList, client.conversations.items.create(created.id, items=[user, called]))
assert (added.first_id, added.last_id, added.has_more) == (added.data[0].id, added.data[1].id, False)
checked(Conversation, client.conversations.items.delete(added.first_id, conversation_id=created.id))
assert [item.id for item in client.conversations.items.list(created.id, order="asc", after=items[5].id)] == [
    added.last_id
]
gone = checked(ConversationDeletedResource, client.conversations.delete(created.id))
assert (gone.id, gone.deleted) == (created.id, True)
for ask in (
    lambda: client.conversations.retrieve(created.id),
    lambda: client.conversations.items.list(created.id),
    lambda: client.responses.create(**body, input="x", conversation=created.id),
):
    try:
        ask()
    except openai.NotFoundError as error:
        assert error.code == "conversation_not_found", error
    else:
        raise AssertionError("it is found")
checked(Conversation, client.conversations.create())
print("done")
"""


def create(http: HttpClient, headers: dict[str, str] | None = None, **fields: object) -> str:
    answer = http.post(CONVERSATIONS, fields, **(headers or {}))
    assert answer.status == 200, answer.body
    return str(answer.json["id"])


def items_of(http: HttpClient, conversation: str, query: str = "order=asc&limit=100") -> Any:
    answer = http.get(f"{CONVERSATIONS}/{conversation}/items?{query}")
    assert answer.status == 200, answer.body
    return answer.json


def ask(http: HttpClient, headers: dict[str, str] | None = None, **fields: object) -> Answer:
    return http.post(RESPONSES, {**BODY, **fields}, **(headers or {}))


def test_openais_client(http: HttpClient) -> None:
    assert run(CLIENT, PROGRAM, f"http://127.0.0.1:{http.port}/v1") == "done\n"


def test_items_are_told_in_full(http: HttpClient) -> None:
    thought = {"type": "reasoning", "summary": []}
    parts = {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}
    conversation = create(http, items=[parts, SAID, CALLED, thought, RETURNED, {"role": "user", "content": None}])
    told = items_of(http, conversation)
    assert [set(item) - {"id", "type", "status"} for item in told["data"]] == [
        {"role", "content"},
        {"role", "content"},
        {"call_id", "name", "arguments"},
        {"call_id", "output"},
        {"role", "content"},
    ], "reasoning is ignored"
    texts = [{"type": "input_text", "text": text} for text in "ab"]
    assert (told["data"][0]["role"], told["data"][0]["content"]) == ("developer", texts)
    assert told["data"][1]["content"] == [{"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}]
    assert told["data"][3]["output"] == "42"
    assert told["data"][4]["content"] == []
    ids = [item["id"] for item in told["data"]]
    assert [each.partition("_")[0] for each in ids] == ["msg", "msg", "fc", "fco", "msg"]
    assert len(set(ids)) == 5
    assert (told["object"], told["first_id"], told["last_id"], told["has_more"]) == ("list", ids[0], ids[4], False)
    page = items_of(http, conversation, f"limit=2&after={ids[4]}")
    assert ([item["id"] for item in page["data"]], page["has_more"]) == ([ids[3], ids[2]], True)
    page = items_of(http, conversation, f"limit=2&after={ids[2]}&include=anything")
    assert ([item["id"] for item in page["data"]], page["has_more"]) == ([ids[1], ids[0]], False)
    nothing = items_of(http, create(http))
    assert (nothing["data"], nothing["first_id"], nothing["last_id"]) == ([], None, None)


def test_a_response_is_no_conversation_and_a_conversation_no_response(http: HttpClient) -> None:
    conversation, response = create(http), ask(http).json["id"]
    assert http.get(f"{CONVERSATIONS}/{response}").error["code"] == "conversation_not_found"
    assert http.get(f"{RESPONSES}/{conversation}").error["code"] == "response_not_found"
    assert ask(http, conversation=response).status == 404
    assert ask(http, previous_response_id=conversation).error["code"] == "previous_response_not_found"


def test_what_is_not_stored_is_added_as_well(http: HttpClient) -> None:
    conversation = create(http, items=HELLO)
    response = ask(http, conversation=conversation, store=False, instructions="Be brief.").json
    assert response["conversation"] == {"id": conversation}
    assert [item["role"] for item in items_of(http, conversation)["data"]] == ["user", "user", "assistant"]


def test_a_response_that_fails_or_is_too_late_adds_nothing(http: HttpClient) -> None:
    conversation = create(http, items=HELLO)
    before = items_of(http, conversation)
    assert ask(http, conversation=conversation, max_output_tokens=0).status == 400
    late = {"x_fairlead_timeout": "0.001"}
    assert ask(http, late, conversation=conversation, max_output_tokens=1900).error["code"] == "deadline_exceeded"
    assert items_of(http, conversation) == before


def test_a_response_that_is_cancelled_adds_nothing(stack: Stack) -> None:
    stack.worker("a", fake_step_seconds=0.02)
    gateway, http = serving(stack)
    conversation = create(http, items=HELLO)
    before = items_of(http, conversation)
    body = {**BODY, "conversation": conversation, "max_output_tokens": 4000, "stream": True}
    with http.begin(RESPONSES, body):
        eventually(lambda: stack.requests() == 1, "it runs")
    eventually(lambda: gateway.logged("call ended"), "the call ends")
    assert [line["outcome"] for line in gateway.logged("call ended")] == ["CANCELLED"]
    assert items_of(http, conversation) == before


def test_a_conversation_is_an_interaction(http: HttpClient) -> None:
    conversation = create(http)

    def interaction(**headers: str) -> str:
        answer = ask(http, headers, conversation=conversation)
        assert answer.status == 200, answer.body
        named, token = answer.headers["x-fairlead-interaction"].split(";token=")
        assert token
        return named

    assert [interaction(), interaction(), interaction(x_session_id="other")] == [conversation] * 3
    assert interaction(x_fairlead_interaction="chosen") == "chosen"


def test_where_there_is_no_room_nothing_is_added_and_it_is_told(shared_stack: Stack) -> None:
    _, http = serving(shared_stack, response_store_mib=1)
    capacity = 2**20
    nearly_all = {"filler": "x" * (capacity - OVERHEAD - 200)}
    conversation = create(http, metadata=nearly_all)
    response = ask(http, conversation=conversation, store=False).json
    assert response["conversation"] is None
    assert items_of(http, conversation)["data"] == []
    larger = {"filler": "x" * capacity}
    for path, fields, param in (
        (f"/{conversation}/items", {"items": HELLO}, "items"),
        (f"/{conversation}", {"metadata": larger}, "metadata"),
        ("", {"metadata": larger}, "metadata"),
        ("", {"items": [{"role": "user", "content": "x" * capacity}]}, "items"),
    ):
        refused = http.post(CONVERSATIONS + path, fields)
        assert (refused.status, refused.error["param"]) == (400, param)
        assert re.search(rf"a conversation of \d+ bytes: at most {capacity} bytes", refused.error["message"])
    assert http.get(f"{CONVERSATIONS}/{conversation}").json["metadata"] == nearly_all


def test_a_conversation_belongs_to_its_user(http_with_keys: HttpClient) -> None:
    http = http_with_keys
    anns = create(http, by("backend"), metadata={"user_id": "ann"}, items=HELLO)
    for headers in (by("backend", "ann"), by("backend")):
        assert http.get(f"{CONVERSATIONS}/{anns}", **headers).status == 200, "the user, and the key that may name it"
        assert ask(http, headers, conversation=anns).status == 200
    assert ask(http, by("backend"), conversation=anns, user="ann").status == 200
    [item, *_] = http.get(f"{CONVERSATIONS}/{anns}/items?order=asc", **by("backend", "ann")).json["data"]
    paths = [("", "GET"), ("", "DELETE"), ("/items", "GET"), (f"/items/{item['id']}", "GET")]
    paths += [(f"/items/{item['id']}", "DELETE"), ("", "POST"), ("/items", "POST")]
    for headers in (by("backend", "bob"), by("plain"), by("other")):
        for path, method in paths:
            answer = http.request(method, f"{CONVERSATIONS}/{anns}{path}", b"{}", headers)
            assert (answer.status, answer.error["code"]) == (404, "conversation_not_found"), (method, path)
        assert ask(http, headers, conversation=anns).status == 404
    assert ask(http, by("backend"), conversation=anns, user="bob").status == 404
    assert http.post(CONVERSATIONS, {}).status == http.get(f"{CONVERSATIONS}/{anns}").status == 401
    assert len(http.get(f"{CONVERSATIONS}/{anns}/items", **by("backend")).json["data"]) == 7
