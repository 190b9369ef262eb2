"""The run of a batch: calls in the background class, as many as the gateway takes, each until it has an answer."""

import contextlib
import http.client
import json
import math
import threading
import time
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any

from cli.batch.answer_file import AnswerFile
from cli.batch.concurrency import MOST, Concurrency
from cli.batch.http_post import HttpAnswer, HttpPost
from cli.batch.request_file import BatchRequest
from cli.progress import Progress
from fairlead.errors import InvalidRequest, Unavailable
from serving.service_tiers import FLEX, HEADER

REFUSED = (429, 503, 529)  # the call was not begun, and may be repeated at any time
FAILED = (408, 500, 502, 504)  # it was perhaps begun; it is repeated, but not for ever
FOR_ALL = ("permission_denied", "unknown_endpoint")  # codes of what the key or the URL is refused for
ATTEMPTS = 3  # of a call that fails
MOST_BROKEN = 10  # connections of a call that break while the gateway answers others
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0  # seconds before another attempt where the gateway does not say how many
AWAY_SECONDS = 600.0  # a gateway that did not answer for so long, to any call, is gone
START_SECONDS = 60.0  # the same before its first answer
TICK_SECONDS = 0.2


class BatchRunner:
    """One run; `failed` is the number of answers of this run that are errors."""

    def __init__(self, url: str, api_key: str, answers: AnswerFile, progress: Progress, total: int) -> None:
        if not (api_key.isascii() and api_key.isprintable()):
            raise InvalidRequest("--api-key: must be printable ASCII")  # the message must not repeat the key
        authorization = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self.failed = 0
        self._http = HttpPost(url, {HEADER: FLEX, **authorization})
        self._answers = answers
        self._progress = progress
        self._total, self._done = total, 0
        self._changed = threading.Condition()
        self._concurrency = Concurrency()
        self._heard_at = time.monotonic() - AWAY_SECONDS + START_SECONDS  # of the gateway, whatever it said
        self._tasks: SimpleQueue[BatchRequest] = SimpleQueue()
        self._taken = self._threads = 0  # requests that have no answer yet, and threads
        self._ended: BaseException | None = None  # why the run ends early
        self._waits = ""

    def run(self, requests: Iterable[BatchRequest]) -> None:
        """Answer all requests that have no answer.

        Raise Unavailable if the gateway stays away, InvalidRequest if it would answer no request with this URL or key,
        and OSError if an answer cannot be written.
        """
        for request in requests:
            if self._answers.has(request.custom_id):
                with self._changed:
                    self._done += 1
            else:
                self._await_taken(MOST - 1)
                self._begin()
                self._hand_over(request)
        self._await_taken(0)
        self._progress.done("batch", self._state())

    def _hand_over(self, request: BatchRequest) -> None:
        """Let a thread answer `request`. Threads end with the process: a run that ends early waits for no answer."""
        with self._changed:
            self._taken += 1
            if self._threads < self._taken:
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()
        self._tasks.put(request)

    def _work(self) -> None:
        while True:
            try:
                self._answer(self._tasks.get())
            except BaseException as error:
                with self._changed:
                    self._ended = self._ended or error
                    self._changed.notify_all()
                return

    def _begin(self) -> None:
        """Wait until another call may be open, and count it; raise what ends the run."""
        with self._changed:
            while True:
                if self._ended is not None:
                    raise self._ended
                wait = self._concurrency.wait(time.monotonic())
                if wait == 0:
                    self._concurrency.began()
                    return
                self._changed.wait(TICK_SECONDS if wait is None else min(wait, TICK_SECONDS))
                self._show()

    def _await_taken(self, most: int) -> None:
        """Wait until at most `most` requests that were begun have no answer; raise what ends the run."""
        with self._changed:
            while self._taken > most and self._ended is None:
                self._changed.wait(TICK_SECONDS)
                self._show()
            if self._ended is not None:
                raise self._ended

    def _answer(self, request: BatchRequest) -> None:
        """Call until there is an answer, and record it; the call counts as open already."""
        body, attempts, pause = json.dumps(request.body).encode(), 0, FIRST_PAUSE
        while (answer := self._attempt(request, body, pause, attempts)) is None:
            attempts, pause = attempts + 1, min(2 * pause, LONGEST_PAUSE)
            self._begin()
        self._answers.append(answer)
        with self._changed:
            self.failed += answer["error"] is not None
            self._done += 1
            self._taken -= 1
            self._concurrency.succeeded()
            self._waits = ""
            self._changed.notify_all()

    def _attempt(self, request: BatchRequest, body: bytes, pause: float, attempts: int) -> dict[str, Any] | None:
        """Make a call after `attempts` others; return the line of its answer, or None if it has to be repeated."""
        began_at = time.monotonic()
        try:
            answer = self._http.post(request.url, body)
        except (OSError, http.client.HTTPException) as error:
            if attempts + 1 >= MOST_BROKEN and self._heard_at > began_at:
                return _broken(request, f"{MOST_BROKEN} connections broke, the last one with: {_reason(error)}")
            self._missed(error, pause)
            return None
        self._heard_at = time.monotonic()
        if answer.status in REFUSED:
            self._refused(began_at, _retry_after(answer, pause), answer.status)
            return None
        if answer.status in FAILED and attempts + 1 < ATTEMPTS:
            self._failed(pause, f"status {answer.status}")
            return None
        return _line(request, answer)

    def _missed(self, error: Exception, pause: float) -> None:
        """Record that the gateway did not answer a call; raise Unavailable if it has not for too long."""
        if time.monotonic() - self._heard_at > AWAY_SECONDS:
            raise Unavailable(f"the gateway does not answer: {error}")
        self._failed(pause, _reason(error))

    def _failed(self, pause: float, reason: str) -> None:
        with self._changed:
            self._concurrency.failed()
            self._waits = f", repeats calls ({reason})"
            self._changed.notify_all()
        time.sleep(pause)

    def _refused(self, began_at: float, retry_after: float, status: int) -> None:
        with self._changed:
            self._concurrency.refused(began_at, retry_after, time.monotonic())
            self._waits = f", waits {retry_after:.0f} s (status {status})"
            self._changed.notify_all()

    def _show(self) -> None:
        self._progress.show("batch", "running", self._state())

    def _state(self) -> str:
        text = f"{self._done:,} of {self._total:,} done, {self.failed:,} errors in this run"
        return f"{text}, {self._concurrency.open} open{self._waits}"


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _retry_after(answer: HttpAnswer, default: float) -> float:
    """Return the seconds that a header names, or `default`: proxies send dates, too, and what is no time."""
    for name, of_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        with contextlib.suppress(ValueError):
            seconds = float(answer.headers.get(name, 0)) / of_second
            if 0 < seconds < math.inf:
                return seconds
    return default


def _line(request: BatchRequest, answer: HttpAnswer) -> dict[str, Any]:
    """Return the line of an answer; raise InvalidRequest for one that every request would get."""
    try:
        body, is_json = json.loads(answer.body), True
    except (ValueError, RecursionError):
        body, is_json = {"error": {"message": answer.body[:1000].decode(errors="replace"), "code": None}}, False
    told = body.get("error") if isinstance(body, dict) else None
    told = told if isinstance(told, dict) else {}
    code, message = told.get("code"), told.get("message") or "no reason was given"
    is_elsewhere = answer.status < 400 and (answer.status >= 300 or not is_json)
    if is_elsewhere or answer.status == 401 or code in FOR_ALL or (answer.status == 404 and code is None):
        reason = answer.headers.get("location") or message
        raise InvalidRequest(f"--url or --api-key: {request.url} answers with status {answer.status}: {reason}")
    request_id = answer.headers.get("x-request-id", "")
    error = {"code": code or str(answer.status), "message": message} if answer.status >= 300 else None
    response = {"status_code": answer.status, "request_id": request_id, "body": body}
    return {"id": f"batch_req_{request_id}", "custom_id": request.custom_id, "response": response, "error": error}


def _broken(request: BatchRequest, reason: str) -> dict[str, Any]:
    """Return the line of a request that brings no answer, whereas others do."""
    error = {"code": "connection_error", "message": reason}
    return {"id": "batch_req_", "custom_id": request.custom_id, "response": None, "error": error}
