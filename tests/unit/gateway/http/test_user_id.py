"""Who is named in a body, and in which field: a session is never part of the user's name."""

import json

import pytest

from gateway.core.session_tree import Session
from gateway.http.chat_completions import chat_completions
from gateway.http.common_fields import MAX_USER_ID, UserId, named_by, parse_user_id
from tests.services import Process
from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, RESPONSES, TEXT, HttpClient

DEVICE = "d" * 64
ID = "0b7d4e4c-5b1f-4f0c-9c35-7a3d1f6f2a10"
ACCOUNT = f"user_{DEVICE}_account_{ID}"
JSON = json.dumps({"device_id": DEVICE, "account_uuid": "", "session_id": ID})
CLAUDE_CODE = {JSON: DEVICE, f"{ACCOUNT}_session_{ID}": ACCOUNT}
PROMPTS: dict[str, dict[str, object]] = {
    CHAT: {"messages": HELLO, "max_tokens": 1},
    TEXT: {"prompt": "hello", "max_tokens": 1},
    RESPONSES: {"input": "hello", "max_output_tokens": 1},
    MESSAGES: {"messages": HELLO, "max_tokens": 1},
}
FIELDS = [(path, field) for path in (CHAT, TEXT, RESPONSES) for field in ("user", "safety_identifier", "metadata")]


@pytest.mark.parametrize("text", CLAUDE_CODE)
@pytest.mark.parametrize(("path", "field"), [*FIELDS, (MESSAGES, "metadata")])
def test_every_session_of_claude_code_is_the_same_client(
    shared: tuple[Process, HttpClient], path: str, field: str, text: str
) -> None:
    """Proxies pass the id on: LiteLLM makes `user` of Anthropic's `metadata.user_id`."""
    gateway, http = shared
    answer = http.post(path, {**PROMPTS[path], field: {"user_id": text} if field == "metadata" else text})
    assert answer.status == 200, answer.body
    assert gateway.logged("call ended")[-1]["client"] == f"default/{CLAUDE_CODE[text]}"
    assert answer.headers["x-fairlead-interaction"].startswith(f"{ID};token=")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, UserId(user, ID)) for text, user in CLAUDE_CODE.items()),
        (f"user_{DEVICE}_account__session_{ID}", UserId(f"user_{DEVICE}_account_", ID)),
        ('{"session_id": "s"}', UserId("", "s")),
        ('{"device_id": 1, "session_id": "s"}', UserId("", "s")),
        *((text, UserId(text)) for text in ("ann", "", "1", "[]", "null", '{"a"', '{"session_id": 1}', "[" * 1000)),
        *(
            (text, UserId(text))
            for text in (
                "ann_session_5",
                "user_5_session_6",
                "user_a_account_b",
                f"{ACCOUNT}_session_",
                '{"name": "ann"}',
            )
        ),
        (None, UserId()),
        (1, UserId()),
        ([], UserId()),
        ({}, UserId()),
    ],
)
def test_ids(text: object, expected: UserId) -> None:
    assert parse_user_id(text, "user") == expected


@pytest.mark.parametrize(("path", "field"), [*FIELDS, (MESSAGES, "metadata")])
def test_the_length_of_an_id_is_bounded(http: HttpClient, path: str, field: str) -> None:
    text = "user_" + "_account_" * 2000
    value, place = ({"user_id": text}, "metadata.user_id") if field == "metadata" else (text, field)
    answer = http.post(path, {**PROMPTS[path], field: value})
    assert answer.status == 400
    assert answer.json["error"]["message"] == f"{place}: at most {MAX_USER_ID} characters, got {len(text)}"


def test_the_first_that_names_a_user_or_a_session_counts() -> None:
    assert named_by({"user_id": JSON}, "ann", "eve") == UserId("ann", ID, "user")
    assert named_by({"user_id": "eve"}, None, "") == UserId("eve", "", "metadata.user_id")
    assert named_by({"user_id": "eve"}, '{"session_id": "s"}') == UserId("eve", "s", "metadata.user_id")


@pytest.mark.parametrize("metadata", [None, 1, [], {}, {"user_id": 1}])
def test_metadata_may_hold_anything(metadata: object) -> None:
    assert named_by(metadata) == UserId()


@pytest.mark.parametrize(("key", "session"), [("key", "key"), (1, ""), ({}, ""), (None, "")])
def test_without_an_id_the_cache_key_names_the_session(key: object, session: str) -> None:
    body = {"messages": HELLO, "prompt_cache_key": key}
    assert chat_completions(json.dumps(body).encode()).sender({}).session == (Session(session) if session else None)
    assert chat_completions(json.dumps({**body, "user": JSON}).encode()).sender({}).session == Session(ID)
