"""Single answers in `fairlead batch run`: those that end the run, and those that say when to ask again."""

import json

import pytest

from cli.batch import runner
from cli.batch.http_post import HttpAnswer
from cli.batch.request_file import BatchRequest
from fairlead.errors import InvalidRequest


@pytest.mark.parametrize(
    ("status", "headers", "body", "reason"),
    [
        (401, {}, {"error": {"message": "unknown API key", "code": "invalid_api_key"}}, "unknown API key"),
        (403, {}, {"error": {"message": "app: not yours", "code": "permission_denied"}}, "app: not yours"),
        (404, {}, {"error": {"message": "no such path", "code": "unknown_endpoint"}}, "no such path"),
        (404, {}, "<html>", "<html>"),
        (308, {"location": "https://elsewhere"}, "", "https://elsewhere"),
        (200, {}, "<html>", "<html>"),
    ],
)
def test_an_answer_that_all_requests_would_get_ends_the_run_and_is_no_answer(
    status: int, headers: dict[str, str], body: object, reason: str
) -> None:
    """A wrong key or address would fill the file of answers with errors, and none of them would be asked for again."""
    content = body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(InvalidRequest, match=f"--url or --api-key: .* status {status}: {reason}"):
        runner._line(BatchRequest("a", "/v1/completions", {}), HttpAnswer(status, headers, content.encode()))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 7.0),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "3", "retry-after-ms": "2500"}, 2.5),
        ({"retry-after": "3", "retry-after-ms": "soon"}, 3.0),
        ({"retry-after": "Sat, 28 Nov 2026 10:00:00 GMT"}, 7.0),
        *(({"retry-after": text}, 7.0) for text in ("inf", "nan", "-1", "0", "")),
    ],
)
def test_a_refusal_is_waited_for_as_long_as_it_says_if_it_says_a_time(headers: dict[str, str], seconds: float) -> None:
    assert runner._retry_after(HttpAnswer(503, headers, b""), 7.0) == seconds
