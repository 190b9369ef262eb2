"""The page over HTTP: what needs a login, what is refused, and what the events say."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from fairlead import Client
from gateway.config import GatewayConfig
from gateway.page.access import page_key
from gateway.page.login_limiter import MOST_GUESSES
from serving.config import ConfigError
from tests.services import SECRET, Process, Stack
from tests.unit.gateway.http.http_client import HELLO
from tests.unit.gateway.page.viewer import Viewer

CHAT = {"model": "tiny", "messages": HELLO, "max_tokens": 4}


def test_files_need_no_login_and_load_nothing_from_elsewhere(viewer: Viewer) -> None:
    for path in ("/", "/page.css", "/js/main.js", "/vendor/uplot/uPlot.esm.js", "/icon.svg"):
        answer = viewer.get(path)
        assert answer.status == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert viewer.get(path, if_none_match=answer.headers["etag"]).status == 304
    assert b"<script>" not in viewer.get("/").body
    assert viewer.get("/js/../page.py").status == 404
    assert viewer.get("/vendor/uplot/LICENSE").status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/events"), ("GET", "/calls?client=ann"), ("GET", "/controls"), ("POST", "/v1/chat/completions")],
)
def test_everything_else_needs_one(viewer: Viewer, method: str, path: str) -> None:
    assert viewer.request(method, path, b"{}", {}).status == 401
    assert viewer.request(method, path, b"{}", {"cookie": "fairlead-page=9999999999.0"}).status == 401
    assert viewer.get("/access").json == {"open": False}


def test_the_secret_or_the_pages_key_opens_it(viewer: Viewer) -> None:
    assert viewer.log_in("not the secret").status == 401
    assert viewer.cookie == ""
    for key in (SECRET, page_key(SECRET)):
        assert viewer.log_in(key).status == 204
        assert viewer.get("/access", cookie=viewer.cookie).json == {"open": True}
        assert viewer.get("/calls?client=nobody", cookie=viewer.cookie).json == []
    assert "Max-Age=0" in viewer.post("/logout", b"", cookie=viewer.cookie).headers["set-cookie"]


def test_another_page_cannot_use_a_login(viewer: Viewer) -> None:
    viewer.log_in()
    for path in ("/v1/chat/completions", "/controls", "/logout", "/login"):
        assert viewer.post(path, CHAT, cookie=viewer.cookie, origin="http://evil.example").status == 403
    own = f"http://127.0.0.1:{viewer.port}"
    assert viewer.post("/controls", b"", cookie=viewer.cookie, origin=own).json == []


def test_a_rebound_name_and_another_scheme_are_another_page(viewer: Viewer) -> None:
    viewer.log_in()
    rebound = {"host": "evil.example", "cookie": viewer.cookie}
    for path in ("/", "/access", "/calls?client=ann"):
        assert viewer.request("GET", path, b"", rebound).status == 403
    assert viewer.request("POST", "/login", SECRET.encode(), {**rebound, "origin": "http://evil.example"}).status == 403
    secure = f"https://127.0.0.1:{viewer.port}"
    assert viewer.post("/controls", b"", cookie=viewer.cookie, origin=secure).status == 403
    assert viewer.post("/controls", b"", cookie=viewer.cookie, sec_fetch_site="cross-site").status == 403


def test_guesses_are_limited_and_logged_once(stack: Stack) -> None:
    gateway = stack.start("gateway", scheduler=stack.addresses, page_listen="127.0.0.1:0")
    viewer = Viewer(gateway.wait_for("listening")["page_port"])
    tries = [viewer.log_in(f"guess {number}") for number in range(MOST_GUESSES + 5)]
    assert [answer.status for answer in tries] == [401] * MOST_GUESSES + [429] * 5
    assert viewer.log_in().status == 429, "a guess that is right, too"
    assert len(gateway.logged("the page was refused: wrong key")) == 1


def test_keys_and_cookies_are_not_logged(served: Process, viewer: Viewer) -> None:
    viewer.log_in("a key that is wrong")
    viewer.log_in()
    viewer.get("/calls?client=ann", cookie=viewer.cookie)
    for word in (SECRET, page_key(SECRET), "a key that is wrong", viewer.cookie):
        assert word not in served.log


def test_a_call_is_seen_in_events_and_in_its_waterfall(viewer: Viewer) -> None:
    viewer.log_in()
    states = viewer.states()
    first = next(states)
    assert set(first["workers"]) == {"a", "b"}
    assert first["past"]["times"], "a viewer that comes sees the last minutes"
    answer = viewer.post("/v1/chat/completions", CHAT, cookie=viewer.cookie, x_fairlead_user="ann")
    assert answer.status == 200
    state = next(state for state in states if state["clients"].get("default/ann", {}).get("service"))
    assert state["clients"]["default/ann"]["waiting"] == 0
    assert sum(len(worker["served"]) for worker in state["workers"].values()) >= 1
    [call] = viewer.get(f"/calls?id={answer.headers['x-request-id']}", cookie=viewer.cookie).json
    assert call in viewer.get("/calls?client=default/ann", cookie=viewer.cookie).json
    assert [phase[0] for phase in call["phases"]] == ["admit", "select", "queue", "prefill", "decode"]
    assert "hello" not in str(call), "prompts are not kept"


def test_head_is_get_without_a_body_and_no_stream(viewer: Viewer) -> None:
    viewer.log_in()
    for path in ("/", "/access", "/events", "/nosuch"):
        answer = viewer.request("HEAD", path, b"", {"cookie": viewer.cookie})
        assert (answer.status, answer.body) == (404 if path == "/nosuch" else 200, b""), path


def test_a_tried_call_is_refused_as_any_other(viewer: Viewer) -> None:
    viewer.log_in()
    answer = viewer.post("/v1/chat/completions", {**CHAT, "model": "nosuch"}, cookie=viewer.cookie)
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")


def test_rights_of_keys_hold_on_the_page(shared_stack: Stack, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    digest = hashlib.sha256(b"plain key").hexdigest()
    keys.write_text(f"keys:\n  - {{hash: {digest}, tenant: acme}}\n")
    gateway = shared_stack.start("gateway", scheduler=shared_stack.addresses, keys=str(keys), page_listen="127.0.0.1:0")
    gateway.wait_for("ready")
    viewer = Viewer(gateway.wait_for("listening")["page_port"])
    viewer.log_in()
    ask = "/v1/chat/completions"
    assert viewer.post(ask, CHAT, cookie=viewer.cookie).status == 401, "a login is no API key"
    key = {"cookie": viewer.cookie, "authorization": "Bearer plain key"}
    assert viewer.post(ask, CHAT, **key, x_fairlead_user="ann").status == 403, "this key may not name users"


def test_a_limit_that_is_used_up_is_shown_with_its_end(shared_stack: Stack) -> None:
    gateway = shared_stack.gateway(page_listen="127.0.0.1:0", throttle="oit:1")
    viewer = Viewer(gateway.wait_for("listening")["page_port"])
    viewer.log_in()

    async def ask() -> None:
        async with Client(gateway.address, user="ann") as client, client.interaction() as interaction:
            await interaction.generate("hello", max_tokens=2)
            state = next(viewer.states())
            assert state["throttle"]["interactions"] == {"in_flight": 0, "idle": 1}
            account = state["throttle"]["exhausted"]["user:default/ann"]
            assert account["limit"] == 1
            assert 0 < account["until"] - state["time"] <= 61
            assert state["throttle"]["waits"] == {"predicted": 1, "close": 1}

    asyncio.run(ask())


def test_a_budget_of_money_that_is_used_up_is_shown_in_units_of_the_currency(
    shared_stack: Stack, tmp_path: Path
) -> None:
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text("prices: {default: {output: 1000000}}\nlimits: {tenant_money_per_calendar_day: 2}\n")
    gateway = shared_stack.gateway(page_listen="127.0.0.1:0", profiles=profiles)
    viewer = Viewer(gateway.wait_for("listening")["page_port"])
    viewer.log_in()

    async def ask() -> None:
        async with Client(gateway.address, user="ann") as client:
            await client.generate("hello", max_tokens=2, ignore_eos=True)
            state = next(viewer.states())
            account = state["throttle"]["exhausted"]["money:calendar_day:tenant:default"]
            assert account["limit"] == 2.0

    asyncio.run(ask())


def test_the_end_of_the_gateway_does_not_wait_for_viewers(shared_stack: Stack) -> None:
    gateway = shared_stack.gateway(page_listen="127.0.0.1:0", drain_seconds=600)
    viewer = Viewer(gateway.wait_for("listening")["page_port"])
    viewer.log_in()
    states = viewer.states()
    next(states)
    gateway.begin_terminate()
    for _ in states:  # until the stream ends
        pass
    assert gateway.wait() == 0


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "page.example:8080"])
def test_a_public_page_needs_tls_or_an_explicit_word(listen: str) -> None:
    with pytest.raises(ConfigError, match="the admin secret would cross the network in clear"):
        GatewayConfig(secret=SECRET, page_listen=listen)
    assert GatewayConfig(secret=SECRET, page_listen=listen, insecure=True).page_listen == listen
    assert GatewayConfig(secret=SECRET, page_listen=listen, tls="c,k").page_listen == listen
    assert GatewayConfig(secret=SECRET).page_listen == "", "there is no page unless it is asked for"
