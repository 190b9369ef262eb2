"""What a page of the web gets from a gateway without keys: nothing, in whatever way its browser asks."""

import json

import pytest

from tests.services import Stack
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, HELLO, MODELS, Answer, HttpClient, by

BODY = json.dumps({"messages": HELLO, "max_tokens": 1}).encode()
JSON = {"content-type": "application/json"}
APP = "https://chat.example"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


def post(http: HttpClient, headers: dict[str, str], path: str = CHAT) -> Answer:
    return http.request("POST", path, BODY, {**JSON, **headers})


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "0x7f000001",
        "-x",
        "x_",
        "internal.example",
        "",
        "[",
        "[::2]",
        "[::ffff:10.0.0.1]",
    ],
)
def test_a_rebound_name_is_refused(http: HttpClient, host: str) -> None:
    for answer in (post(http, {"host": host, "origin": f"http://{host}"}), post(http, {"host": host})):
        assert answer.status == 403, answer.body
        assert "http_hosts" in answer.error["message"]
    assert http.request("GET", MODELS, b"", {"host": host}).status == 403


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "app.localhost",
        "127.0.0.1",
        "127.1.2.3:80",
        "[::1]:8000",
        "[::ffff:127.0.0.1]:8000",
        "localhost.",
        "x",
        "gate-1:8000",
        "compose_gateway_1",
        "host.docker.internal:8000",
        "fairlead.default.svc.cluster.local",
        "0.0.0.0:8000",
        "[::]",
    ],
)
def test_names_of_this_machine_are_served(http: HttpClient, host: str) -> None:
    assert post(http, {"host": host}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "https://localhost"},
        {"origin": "file://"},
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site", "origin": "http://localhost"},
    ],
)
def test_another_page_is_refused(http: HttpClient, headers: dict[str, str]) -> None:
    answer = post(http, {"host": "localhost", **headers})
    assert answer.status == 403
    assert "http_hosts" in answer.error["message"]
    assert "access-control-allow-origin" not in answer.headers
    preflight = http.request("OPTIONS", CHAT, b"", {**PREFLIGHT, **headers})
    assert preflight.status == 403
    assert f"got '{headers.get('origin', '')}'" in preflight.error["message"]
    assert "access-control-allow-origin" not in preflight.headers


def test_a_page_of_this_origin_is_served(http: HttpClient) -> None:
    for host in ("localhost", "127.0.0.1:8000"):
        assert post(http, {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}).status == 200


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "json",
        "text/json",
        "application/jsonp",
        "application/json; charset=latin-1",
        "text/plain; application/json",
    ],
)
def test_a_body_says_that_it_is_json(http: HttpClient, kind: str) -> None:
    """Browsers ask before they send JSON to another origin, and do not ask for other types."""
    answer = http.request("POST", CHAT, BODY, {"content-type": kind})
    assert answer.status == 415
    assert answer.error["param"] == "content-type"
    if "charset" not in kind:
        assert "-H 'content-type: application/json'" in answer.error["message"]


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"', "application/vnd.api+json"]
)
def test_kinds_of_json_are_read(http: HttpClient, kind: str) -> None:
    assert http.request("POST", CHAT, BODY, {"content-type": kind}).status == 200


def test_a_program_may_leave_out_the_type_and_a_browser_may_not(http: HttpClient) -> None:
    """A page may send a body without a type to any origin."""
    assert http.request("POST", CHAT, BODY, {}).status == 200
    own = {"host": "localhost", "origin": "http://localhost"}
    assert http.request("POST", CHAT, BODY, own).status == 415
    assert http.request("POST", CHAT, BODY, {"sec-fetch-site": "same-origin"}).status == 415


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip", "zstd"])
def test_a_compressed_body_is_refused_by_name(http: HttpClient, encoding: str) -> None:
    answer = post(http, {"content-encoding": encoding})
    assert answer.status == 415
    assert encoding in answer.error["message"]
    assert answer.error["param"] == "content-encoding"
    assert post(http, {"content-encoding": "identity"}).status == 200


def test_named_origins_and_names(stack: Stack) -> None:
    stack.worker("a")
    extension = "chrome-extension://abcdefghijklmnop"
    origins = f"{APP},http://localhost:3000,{extension},app://obsidian.md"
    _, http = serving(stack, http_hosts=f"gateway.example,{origins}")
    assert post(http, {"host": "gateway.example:8000"}).status == 200
    assert post(http, {"host": "evil.example"}).status == 403
    for origin in origins.split(","):
        page = {"origin": origin, "sec-fetch-site": "cross-site"}
        preflight = http.request("OPTIONS", CHAT, b"", {**PREFLIGHT, **page})
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == origin
        assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
        assert "POST" in preflight.headers["access-control-allow-methods"]
        for answer in (
            post(http, page),
            http.request("POST", CHAT, b"{", {**JSON, **page}),
            http.request("GET", MODELS, b"", page),
        ):
            assert answer.headers["access-control-allow-origin"] == origin
            assert answer.headers["vary"] == "origin"
    assert post(http, {"origin": "http://localhost:3001"}).status == 403
    stream = http.post(
        CHAT, {"messages": HELLO, "max_tokens": 1, "stream": True}, origin=APP, content_type="application/json"
    )
    assert stream.headers["access-control-allow-origin"] == APP
    assert http.request("OPTIONS", CHAT, b"", {}).status == 405


def test_with_keys_a_page_needs_one(http_with_keys: HttpClient) -> None:
    """A proxy passes on its callers' names and origins; no page has a key."""
    foreign = {"host": "gateway.example", "origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert post(http_with_keys, {**foreign, **by("plain")}).status == 200
    assert post(http_with_keys, foreign).status == 401
    assert http_with_keys.request("POST", CHAT, BODY, {"content-type": "text/plain", **by("plain")}).status == 415


@pytest.mark.parametrize(
    "path", ["/v1//chat/completions", "//v1/chat/completions", "/v1/chat/completions/", "/v1/messages/"]
)
def test_slashes_of_a_base_url(http: HttpClient, path: str) -> None:
    assert post(http, {}, path).status == 200


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/"])
def test_the_root_says_what_is_where(http: HttpClient, path: str) -> None:
    answer = http.get(path)
    assert answer.status == 200
    assert CHAT in answer.json["paths"]
    for listed in answer.json["paths"]:
        assert http.get(listed).status in (200, 405)
