"""Errors by the letter of the API: the status, the body, and what tells a client when to try again."""

import codecs
import hashlib
import json
from pathlib import Path

import pytest

from fairlead.errors import ERRORS, error_for
from fairlead.outcomes import Outcome
from gateway.admission import REFUSED_BYTES
from gateway.http.dialect import ANTHROPIC, OPENAI, OPENAI_RESPONSES, Dialect
from gateway.http.errors import STATUSES
from gateway.http.mismatch import SHOWN
from gateway.http.parameters import Unsupported
from tests.services import Stack, eventually
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, TEXT, HttpClient

DEEP = b'{"never_heard_of": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def test_every_outcome_has_a_status() -> None:
    assert set(ERRORS.values()) <= STATUSES.keys()


@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"model": "none such"}, 404, "model", "model_not_found"),
        ({"messages": [{"role": "user", "content": "x " * 200_000}]}, 400, "prompt", "context_length_exceeded"),
        ({"max_tokens": 0}, 400, "max_tokens", "invalid_request"),
        ({"max_tokens": -1}, 400, "max_tokens", "invalid_request"),
        ({"max_tokens": "many"}, 400, "max_tokens", "invalid_request"),
        ({"temperature": -1}, 400, "temperature", "invalid_request"),
        ({"top_p": 1.5}, 400, "top_p", "invalid_request"),
        ({"n": 0}, 400, "n", "invalid_request"),
        ({"n": 129}, 400, "n", "invalid_request"),
        ({"stop": ["x"] * 17}, 400, "stop", "invalid_request"),
        ({"messages": []}, 400, "messages", "invalid_request"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "messages[0].role", "invalid_request"),
        ({"messages": [{"content": "x"}]}, 400, "messages[0].role", "invalid_request"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            400,
            "messages[0].content[0].type",
            "invalid_request",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
            400,
            "messages[0].tool_calls[0]",
            "invalid_request",
        ),
        ({"user": "a\u0000b"}, 400, "user", "invalid_request"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests_name_the_parameter(
    http: HttpClient, stream: bool, fields: dict[str, object], status: int, param: str, code: str
) -> None:
    answer = http.chat(stream=stream, **fields)
    assert answer.status == status, answer.body
    assert (answer.error["param"], answer.error["code"]) == (param, code)
    assert answer.error["type"] == "invalid_request_error"
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.headers["x-request-id"]) == 16
    assert ("This model's maximum context length is" in answer.error["message"]) == (code == "context_length_exceeded")


@pytest.mark.parametrize(
    ("dialect", "message", "begins"),
    [
        (OPENAI, "sampling.json_schema: the output cannot go on", "response_format: the output"),
        (OPENAI, "prompt.chat.tools: the output cannot go on", "tools: the output"),
        (OPENAI_RESPONSES, "sampling.json_schema: the output cannot go on", "text.format: the output"),
        (ANTHROPIC, "sampling.json_schema: the output cannot go on", "output_config.format: the output"),
    ],
)
def test_an_error_within_an_output_names_the_parameter(dialect: Dialect, message: str, begins: str) -> None:
    """A worker names the field in the message alone."""
    error = json.loads(dialect.error_body(error_for(Outcome.REJECTED_INVALID, message), ""))["error"]
    assert error["message"].startswith(begins)
    assert error.get("param", begins.partition(":")[0]) == begins.partition(":")[0]


def test_a_mark_of_the_byte_order_is_no_part_of_a_body(http: HttpClient) -> None:
    body = json.dumps({"messages": HELLO, "max_tokens": 1, "unheard_of": 1}).encode()
    answer = http.request("POST", CHAT, codecs.BOM_UTF8 + body, {})
    assert (answer.status, answer.headers["x-fairlead-ignored"]) == (200, "unheard_of")


@pytest.mark.parametrize("halved", ["\ud83d", "\ude00 \ud83d", "\\\ud83d"])
def test_half_of_a_character_is_no_error(http: HttpClient, halved: str) -> None:
    """Agents in JavaScript send one where they have cut the output of a tool."""
    whole = http.chat(messages=[{"role": "user", "content": f"hello {halved}"}])
    assert whole.status == 200, whole.body
    shown = halved.replace("\ud83d", "\ufffd").replace("\ude00", "\ufffd")
    alike = http.chat(messages=[{"role": "user", "content": f"hello {shown}"}])
    assert whole.json["usage"]["prompt_tokens"] == alike.json["usage"]["prompt_tokens"]


@pytest.mark.parametrize("name", Unsupported.__annotations__)
def test_known_parameters_that_are_not_obeyed_are_refused_by_name(http: HttpClient, name: str) -> None:
    for answer in (http.chat(**{name: ["something"]}), http.complete(**{name: ["something"]})):
        assert answer.status == 400
        assert answer.error["param"] == name


def test_a_name_that_looks_like_a_place_is_shown_in_part(http: HttpClient) -> None:
    answer = http.chat(structured_outputs={" - at `$.x`" * 2000 + "\n": 1})
    assert answer.status == 400
    assert answer.error["param"] == "structured_outputs"
    assert len(answer.error["message"]) < 2 * SHOWN


def test_parameters_that_ask_for_nothing_are_let_through(http: HttpClient) -> None:
    harmless = {
        "tools": [],
        "tool_choice": "none",
        "logprobs": False,
        "response_format": {"type": "text"},
        "top_logprobs": None,
    }
    assert http.chat(**harmless).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", CHAT, 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/images/generations", 404),
        ("POST", "/v1/images/edits", 404),
        ("POST", "/v1/audio/speech", 404),
        ("POST", "/v1/audio/transcriptions", 404),
        ("PUT", TEXT, 405),
    ],
)
def test_paths_and_methods(http: HttpClient, method: str, path: str, status: int) -> None:
    answer = http.request(method, path, b"{}", {})
    codes = {404: "unknown_endpoint", 405: "method_not_allowed"}
    assert (answer.status, answer.error["code"]) == (status, codes[status])
    assert path in answer.error["message"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", CHAT),
        ("/v1/v1/chat/completions", CHAT),
        ("/api/v1/chat/completions/", CHAT),
        ("/V1/Chat/Completions", CHAT),
        ("/openai/deployments/x/chat/completions", CHAT),
        ("/models", "/v1/models"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/tokenize", "/tokenize"),
        ("/v1/embeddings", ""),
        ("/chat/completions/x", ""),
    ],
)
def test_a_path_that_ends_like_an_endpoint_is_told_which(http: HttpClient, path: str, meant: str) -> None:
    message = http.request("POST", path, b"{}", {}).error["message"]
    assert message == f"there is no endpoint {path.rstrip('/')!r}" + (f"; did you mean {meant!r}?" if meant else "")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": "\xff"}', b"[" * 100_000, b"{} {}"]
)
def test_bodies_that_are_none(http: HttpClient, body: bytes) -> None:
    answer = http.post(CHAT, body)
    assert answer.status == 400, answer.body
    assert answer.error["code"] == "invalid_request"


@pytest.mark.parametrize("depth", [50, 60, 99, 200, 982, 990, 1000, 20_000])
@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
@pytest.mark.parametrize("field", ["chat_template_kwargs", "tool_choice", "guided_json", "metadata", "tools", "x"])
def test_depth_ends_with_a_documented_status(http: HttpClient, path: str, field: str, depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    chat = b'"messages":[{"role":"user","content":"hi"}],"max_tokens":1'
    answer = http.post(path, b'{%s,"%s":%s}' % (chat, field.encode(), deep))
    assert answer.status == 400 or (depth < 100 and answer.status == 200), answer.body


def test_keys(stack: Stack, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    hashed = hashlib.sha256(b"gold").hexdigest()
    keys.write_text(
        f"keys:\n  - {{hash: {hashed}, tenant: acme, names_users: true, max_users: 1, apps: [chat, code]}}\n"
    )
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.addresses, keys=keys, http_listen="127.0.0.1:0")
    http = HttpClient(gateway.wait_for("listening")["http_port"])
    gateway.wait_for("ready")
    body = {"messages": HELLO, "max_tokens": 1}
    for path in (CHAT, TEXT):
        answer = http.post(path, b"not read before it is known who calls")
        assert answer.status == 401
        assert answer.error["code"] == "invalid_api_key"
        assert answer.error["message"] == "authorization: expected 'Bearer <API key>'"
        assert answer.headers["www-authenticate"] == "Bearer"
    assert http.get("/v1/models").status == 401
    assert http.get("/v1/models", authorization="Bearer gold").status == 200
    assert http.post(CHAT, body, x_api_key="gold").status == 200
    named = {"authorization": "Bearer gold", "x_fairlead_app": "code"}
    assert http.post(CHAT, {**body, "user": "ann"}, **named).status == 200
    assert http.post(CHAT, {**body, "safety_identifier": "ann"}, **named).status == 200
    call = gateway.logged("call ended")[-1]
    assert (call["client"], call["app"]) == ("acme/ann", "code")
    assert http.post(CHAT, {**body, "user": "eve"}, **named).status == 200, "no call of the other user is open"
    answer = http.post(CHAT, body, authorization="Bearer gold", x_fairlead_app="none of it")
    assert answer.status == 403
    assert answer.error["code"] == "permission_denied"


def test_a_key_that_may_not_name_users_is_served_as_its_tenant(stack: Stack, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"keys:\n  - {{hash: {hashlib.sha256(b'plain').hexdigest()}, tenant: solo}}\n")
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.addresses, keys=keys, http_listen="127.0.0.1:0")
    http = HttpClient(gateway.wait_for("listening")["http_port"])
    gateway.wait_for("ready")
    assert (
        http.post(CHAT, {"messages": HELLO, "max_tokens": 1, "user": "ann"}, authorization="Bearer plain").status == 200
    )
    assert gateway.logged("call ended")[-1]["client"] == "solo"


def test_who_is_throttled_is_told_when_to_come_back(stack: Stack) -> None:
    stack.worker("a")
    _, http = serving(stack, throttle="rpm:1")
    answers = [http.chat(max_tokens=1) for _ in range(3)]  # a minute may turn once
    refused = next(answer for answer in answers if answer.status != 200)
    assert refused.status == 429
    assert (refused.error["type"], refused.error["code"]) == ("rate_limit_error", "throttled_user")
    milliseconds = int(refused.headers["retry-after-ms"])
    assert 0 < milliseconds <= 60_000
    assert int(refused.headers["retry-after"]) == -(-milliseconds // 1000)


LIMIT, REMAINING, RESET = (f"x-ratelimit-{figure}-requests" for figure in ("limit", "remaining", "reset"))


def test_an_answer_tells_what_remains_of_the_users_limit(stack: Stack) -> None:
    """The throttle is `oit`: nothing is overloaded, so that calls go on when nothing remains."""
    stack.worker("a")
    _, http = serving(stack, throttle="oit:3")
    answers = [http.chat(max_tokens=1, stream=stream) for stream in (False, True, True, False)]
    answers.append(http.post(MESSAGES, {"messages": HELLO, "max_tokens": 1}))
    answers.append(http.chat(max_tokens=-1))
    assert [answer.status for answer in answers] == [200, 200, 200, 200, 200, 400]
    assert [answer.headers[REMAINING] for answer in answers] == ["2", "1", "0", "0", "0", "0"]
    assert {answer.headers[LIMIT] for answer in answers} == {"3"}
    assert all(0 < float(answer.headers[RESET].removesuffix("s")) <= 60 for answer in answers)


def test_a_refused_body_counts_by_its_bytes(stack: Stack) -> None:
    stack.worker("a")
    _, http = serving(stack, throttle="oit:40")
    answers = [http.post(CHAT, body) for body in (b"[]", b" " * 4 * REFUSED_BYTES, b"[]")]
    assert [answer.status for answer in answers] == [400, 400, 400]
    assert [answer.headers[REMAINING] for answer in answers] == ["39", "34", "33"]


@pytest.mark.parametrize(
    ("profiles", "code", "message"),
    [
        ("limits: {tenant_per_minute: 2}", "throttled_tenant", "is over tenant_per_minute=2"),
        ("apps: {default: {per_minute: 2}}", "throttled_app", "is over app_per_minute=2"),
    ],
)
def test_users_are_told_and_refused_by_the_limit_of_their_tenant_or_app(
    stack: Stack, tmp_path: Path, profiles: str, code: str, message: str
) -> None:
    (tmp_path / "profiles.yaml").write_text(profiles)
    stack.worker("a")
    _, http = serving(stack, throttle="rpm", profiles=tmp_path / "profiles.yaml")
    answers = [http.chat(max_tokens=1, x_fairlead_user=f"user {number}") for number in range(5)]
    assert {answer.headers[LIMIT] for answer in answers} == {"2"}, "less is left of it than of a user's 60"
    refused = next(answer for answer in answers if answer.status != 200)  # a minute may turn once
    assert refused.status == 429
    assert (refused.error["type"], refused.error["code"]) == ("rate_limit_error", code)
    assert f"{message}; retry in" in refused.error["message"]
    assert refused.headers[REMAINING] == "0"
    assert 0 < int(refused.headers["retry-after"]) <= 60


def test_without_a_throttle_no_limit_is_told(http: HttpClient) -> None:
    assert not {LIMIT, REMAINING, RESET} & http.chat().headers.keys()


def test_a_deadline(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.05")
    _, http = serving(stack)
    answer = http.post(CHAT, {"messages": HELLO}, x_fairlead_timeout="0.3")
    assert answer.status == 504
    assert answer.error["code"] == "deadline_exceeded"
    eventually(lambda: stack.requests() == 0, "the worker is free again")
    cut = http.post(CHAT, {"messages": HELLO, "stream": True}, x_fairlead_timeout="2")
    assert cut.status == 200
    assert cut.events[-1]["error"]["code"] == "deadline_exceeded", "an error that comes later is an event"
    assert not cut.is_done
    assert http.post(CHAT, {"messages": HELLO}, x_fairlead_timeout="soon").error["param"] == "x-fairlead-timeout"
