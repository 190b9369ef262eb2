"""Whatever is posted is answered or refused by the letter of the API, and never breaks the gateway.

`pytest tests/gateway/http/test_fuzz.py --requests 10000 -s` sends so many, and prints how many had which
status; the suite sends a few hundred.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from gateway.http.errors import STATUSES
from tests.gateway.http.bodies import Posted, requests
from tests.gateway.http.http_client import MESSAGES, RESPONSES, Answer, HttpClient
from tests.gateway.http.test_messages import error_of
from tests.services import Process

REFUSALS = {(status.status, status.type, status.code) for status in STATUSES.values() if 400 <= status.status < 499}


def check_message(answer: Answer) -> None:
    if answer.status != 200:
        assert answer.status in {status for status, _, _ in REFUSALS}, answer.body
        assert error_of(answer)["message"]
    elif answer.headers["content-type"] == "application/json":
        assert answer.json["stop_reason"]
    else:
        assert answer.named_events[-1] == {"type": "message_stop"}


def post(http: HttpClient, posted: Posted) -> int:
    """The status of the answer, which must have the form that the API gives it."""
    answer = http.request("POST", posted.path, posted.body, posted.headers)
    if posted.path == MESSAGES:
        check_message(answer)
    elif answer.status != 200:
        error = answer.error
        assert (answer.status, error["type"], error["code"]) in REFUSALS, answer.body
        assert error["message"]
        assert error["param"] is None or error["param"] != ""
    elif answer.headers["content-type"] == "application/json":
        assert answer.json["output" if posted.path == RESPONSES else "choices"]
    elif posted.path == RESPONSES:
        assert answer.named_events[-1]["type"] in ("response.completed", "response.incomplete")
    else:
        assert answer.is_done, answer.body
        assert all("error" not in event for event in answer.events)
    return answer.status


def test_whatever_is_posted(shared: tuple[Process, HttpClient], pytestconfig: pytest.Config) -> None:
    gateway, http = shared
    statuses = Counter[int]()

    @settings(
        max_examples=pytestconfig.getoption("requests", 300), database=None, suppress_health_check=list(HealthCheck)
    )
    @given(posted=requests())
    def each(posted: Posted) -> None:
        statuses[post(http, posted)] += 1

    each()
    print(dict(statuses))
    assert 10 * min(statuses[200], statuses[400]) > statuses.total(), "many are answered, and many refused"
    assert http.chat().status == 200
    assert not gateway.logged("request failed")
