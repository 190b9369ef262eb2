"""Whatever is sent is answered or refused by the letter of the API, and never breaks the gateway.

`pytest tests/unit/gateway/http/test_fuzz.py --requests 3000 -s` sends so many, and prints how many had which
status; the suite sends a few hundred.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.http.errors import STATUSES
from tests.services import Process, Stack
from tests.unit.gateway.http.bodies import ANYTHING, Sent, requests
from tests.unit.gateway.http.extremes import extremes
from tests.unit.gateway.http.http_client import (
    CHAT,
    COUNT,
    DETOKENIZE,
    INPUT_TOKENS,
    MESSAGES,
    MODELS,
    RESPONSES,
    TOKENIZE,
    Answer,
    HttpClient,
)
from tests.unit.gateway.http.test_agent_bodies import CHATS, CLAUDE_CODE, CODEX
from tests.unit.gateway.http.test_messages import error_of

REFUSALS = {(status.status, status.type, status.code) for status in STATUSES.values() if 400 <= status.status < 499}
# A field that every answer has.
FIELDS = {
    MESSAGES: "stop_reason",
    COUNT: "input_tokens",
    INPUT_TOKENS: "input_tokens",
    RESPONSES: "output",
    TOKENIZE: "tokens",
    DETOKENIZE: "prompt",
    MODELS: "data",
    f"{MODELS}/tiny": "max_model_len",
    "/version": "version",
    "": "paths",
    "/v1": "paths",
}


def check_answer(path: str, answer: Answer) -> None:
    if path == "/health":
        assert answer.json == {}
    elif answer.headers["content-type"] == "application/json":
        assert answer.json[FIELDS.get(path, "choices")]
    elif path == MESSAGES:
        assert answer.named_events[-1] == {"type": "message_stop"}
    elif path == RESPONSES:
        assert answer.named_events[-1]["type"] in ("response.completed", "response.incomplete")
    else:
        assert answer.is_done, answer.body
        assert all("error" not in event for event in answer.events)


def check_refusal(path: str, answer: Answer) -> None:
    if path == MESSAGES or path.startswith(f"{MESSAGES}/"):
        assert answer.status in {status for status, _, _ in REFUSALS}, answer.body
        assert error_of(answer)["message"]
    else:
        error = answer.error
        assert (answer.status, error["type"], error["code"]) in REFUSALS, answer.body
        assert error["message"]
        assert error["param"] is None or error["param"] != ""


def status_of(http: HttpClient, sent: Sent) -> int:
    """The status of the answer, which must have the form that the API gives it."""
    answer = http.request(*sent)
    path = "".join(f"/{part}" for part in sent.path.partition("?")[0].split("/") if part)
    if sent.method == "HEAD":
        assert answer.status == http.request("GET", *sent[1:]).status
        assert not answer.body
    elif answer.status == 200:
        check_answer(path, answer)
    else:
        check_refusal(path, answer)
    return answer.status


def places_in(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of each value within `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*place, key)
        yield from places_in(each, (*place, key))


def replaced(value: Any, place: Sequence[str | int], new: Any) -> Any:
    """Return `value` with `new` at `place`."""
    if not place:
        return new
    changed: Any = dict(value) if isinstance(value, dict) else list(value)
    changed[place[0]] = replaced(changed[place[0]], place[1:], new)
    return changed


@st.composite
def agents(draw: st.DrawFn) -> Sent:
    """Draw a request of an agent in which a few values are anything, or those of another field."""
    path, body = draw(st.sampled_from([(MESSAGES, CLAUDE_CODE), (RESPONSES, CODEX), (CHAT, CHATS)]))
    body = {**body, "stream": draw(st.booleans()), "max_tokens": 2, "max_output_tokens": 2}
    for _ in range(draw(st.integers(1, 3))):
        places = [*places_in(body)]
        place = draw(st.sampled_from(places))
        new = draw(st.none() | ANYTHING | st.sampled_from([value_at(body, other) for other in places]))
        body = replaced(body, place, new)
    return Sent("POST", path, json.dumps(body).encode(), {})


def value_at(value: Any, place: Sequence[str | int]) -> Any:
    for key in place:
        value = value[key]
    return value


def check_logs(gateway: Process, stack: Stack) -> None:
    processes = (gateway, stack.scheduler, *stack.workers.values())
    assert not [process.log for process in processes if "Traceback" in process.log]


def test_whatever_agents_send(
    shared_stack: Stack, shared: tuple[Process, HttpClient], pytestconfig: pytest.Config
) -> None:
    gateway, http = shared
    statuses = Counter[int]()

    @settings(
        max_examples=pytestconfig.getoption("requests", 300), database=None, suppress_health_check=list(HealthCheck)
    )
    @given(sent=agents())
    def each(sent: Sent) -> None:
        statuses[status_of(http, sent)] += 1

    each()
    print(dict(statuses))
    assert statuses.keys() <= {200, 400, 404}, "404 is that of a model"
    assert 6 * statuses[200] > statuses.total(), "many are answered"
    check_logs(gateway, shared_stack)


def test_whatever_is_sent(shared_stack: Stack, shared: tuple[Process, HttpClient], pytestconfig: pytest.Config) -> None:
    gateway, http = shared
    statuses = Counter[int]()

    @settings(
        max_examples=pytestconfig.getoption("requests", 300), database=None, suppress_health_check=list(HealthCheck)
    )
    @given(sent=st.integers(0, 2).flatmap(lambda kind: requests() if kind else extremes()))
    def each(sent: Sent) -> None:
        statuses[status_of(http, sent)] += 1

    each()
    print(dict(statuses))
    assert 10 * min(statuses[200], statuses[400]) > statuses.total(), "many are answered, and many refused"
    assert http.chat().status == 200
    check_logs(gateway, shared_stack)
