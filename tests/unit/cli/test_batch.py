"""`fairlead batch run`: on a real stack with the fake engine, killed at random, and against a gateway that refuses."""

import codecs
import json
import os
import random
import resource
import signal
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.batch import runner
from cli.batch.answer_file import AnswerFile
from cli.batch.concurrency import LEAST, MOST, Concurrency
from cli.batch.request_file import RequestFile
from cli.stack import Stack
from fairlead.errors import InvalidRequest
from tests.services import eventually
from tests.unit.cli.commands import Command, called

MiB = 1 << 20


def line(custom_id: str, **fields: Any) -> dict[str, Any]:
    body = {"prompt": f"request {custom_id}", "max_tokens": 3}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body, **fields}


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return path


def answers(path: Path) -> dict[str, dict[str, Any]]:
    """The answers by id, each of which must be there once."""
    found = [json.loads(each) for each in path.read_text().splitlines()]
    by_id = {answer["custom_id"]: answer for answer in found}
    assert len(by_id) == len(found), "a line was answered twice"
    return by_id


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logs = tmp_path_factory.mktemp("logs")
    with Stack(workers=1, log_dir=logs, model="tiny", engine="fake:0.002", http_listen="127.0.0.1:0") as stack:
        yield stack.http


@pytest.mark.e2e
def test_a_run_that_is_killed_at_random_answers_each_line_once(url: str, tmp_path: Path) -> None:
    lines = [line(f"line {number}") for number in range(300)]
    lines[7]["body"]["model"] = "no such model"
    lines[11]["body"]["messages"] = lines[11]["body"].pop("prompt")  # not a body of this API
    requests, out = written(tmp_path / "requests.jsonl", lines), tmp_path / "answers.jsonl"
    command, dice = Command(tmp_path), random.Random(1)
    arguments = ("batch", "run", str(requests), "--out", str(out), "--url", url)
    for part in sorted(dice.sample(range(20, 280), 4)):
        running = command.start(*arguments)
        eventually(lambda part=part: out.exists() and out.read_bytes().count(b"\n") >= part, f"{part} answers")  # type: ignore[misc]
        running.end(signal.SIGKILL)
    with out.open("a") as torn:
        torn.write('{"id": "batch_req_1", "custom_id": "line 299", "resp')
    done = called(*arguments)
    assert done.returncode in (0, 1), done.stderr
    assert "300 of 300 done" in done.stderr
    found = answers(out)
    assert set(found) == {each["custom_id"] for each in lines}
    failed = {name for name, answer in found.items() if answer["error"] is not None}
    assert failed == {"line 7", "line 11"}
    assert found["line 7"]["response"]["status_code"] == 404
    assert found["line 7"]["error"] == {"code": "model_not_found", "message": found["line 7"]["error"]["message"]}
    assert all(found[name]["response"]["status_code"] == 200 for name in set(found) - failed)
    assert found["line 1"]["response"]["body"]["usage"]["completion_tokens"] == 3
    before = out.read_bytes()
    assert called(*arguments).returncode == 0, "there is nothing left to do"
    assert out.read_bytes() == before


class RefusingGateway:
    """An HTTP server that refuses calls while more than `most` are open, and breaks some connections."""

    def __init__(self, most: int, retry_after: float, hangs_up_at: str = "") -> None:
        self.most = most
        self.hangs_up_at = hangs_up_at
        self.retry_after = retry_after
        self.open = self.refused = self.worst = self.calls = 0
        self.tiers: set[str | None] = set()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.handle(self, body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def handle(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        with self._lock:
            self.calls += 1
            self.tiers.add(handler.headers["x-fairlead-service-tier"])
            is_broken = self.calls % 17 == 0 or body["prompt"] == self.hangs_up_at
            is_refused = self.open >= self.most
            self.open += 1
            self.worst = max(self.worst, self.open)
            self.refused += is_refused
        if not is_refused:
            time.sleep(0.03)  # the call takes time, so that others are open beside it
        with self._lock:
            self.open -= 1
        if is_broken:
            handler.close_connection = True
            handler.connection.close()
            return
        status, said = (503, {"error": {"code": "overloaded"}}) if is_refused else (200, {"echo": body["prompt"]})
        content = json.dumps(said).encode()
        handler.send_response(status)
        handler.send_header("retry-after-ms", str(int(1000 * self.retry_after)))
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


def test_a_run_keeps_to_what_the_gateway_takes_and_waits_as_it_is_told(tmp_path: Path) -> None:
    gateway = RefusingGateway(most=12, retry_after=0.05)
    lines = [line(str(number)) for number in range(1500)]
    requests, out = written(tmp_path / "requests.jsonl", lines), tmp_path / "answers.jsonl"
    done = called("batch", "run", str(requests), "--out", str(out), "--url", gateway.url)
    gateway.server.shutdown()
    gateway.server.server_close()
    assert done.returncode == 0, done.stderr
    found = answers(out)
    assert {name: answer["response"]["body"]["echo"] for name, answer in found.items()} == {
        each["custom_id"]: each["body"]["prompt"] for each in lines
    }
    assert gateway.tiers == {"flex"}
    assert 0 < gateway.refused < 300
    assert gateway.worst < 2 * gateway.most + 8


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "line 2"),
        ("[]", "expected a JSON object"),
        (json.dumps(line("")), "custom_id"),
        (json.dumps(line("a", method="GET")), "method: expected POST"),
        (json.dumps(line("a", url="/v1/embeddings")), "url: expected one of"),
        (json.dumps(line("a", body={"stream": True})), "the answers of a batch are whole"),
        (json.dumps(line("a", body=[])), "body: expected"),
        (json.dumps(line("a", body={"stream": 1})), "got 1"),
        (json.dumps(line("a", url=["x" * 9000])), f"got ['{'x' * 12}"),
        (json.dumps(line("a")).replace('"a"', "NaN"), "not JSON: NaN"),
        (json.dumps(line("first")), "line 2: custom_id: 'first' is given twice"),
    ],
)
def test_a_file_that_is_no_batch_is_refused_before_anything_is_sent(bad: str, reason: str, tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_text(f"{json.dumps(line('first'))}\n{bad}\n")
    done = called("batch", "run", str(requests), "--out", str(tmp_path / "out"), "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert reason in done.stderr
    assert len(done.stderr) < 1000
    assert not (tmp_path / "out").exists()


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_bytes(f"{json.dumps(line('a'))}\n".encode() + b'{"custom_id": "caf\xe9"}\n')
    with pytest.raises(InvalidRequest, match=r"line 2: not UTF-8: .* 0xe9"):
        RequestFile(requests).check()


def test_a_pipe_or_device_is_refused_as_requests_and_as_answers(tmp_path: Path) -> None:
    """A pipe cannot be read twice, and keeps no answers."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidRequest, match="pipe: must be a regular file"):
        RequestFile(tmp_path / "pipe").check()
    for path in (tmp_path / "pipe", Path("/dev/full")):
        with pytest.raises(InvalidRequest, match=f"{path}: must be a regular file"):
            AnswerFile(path)


def test_a_file_may_begin_with_a_mark_of_the_byte_order_and_have_lines_of_windows(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_bytes(codecs.BOM_UTF8 + f"{json.dumps(line('a'))}\r\n\r\n{json.dumps(line('b'))}".encode())
    assert [request.custom_id for request in RequestFile(requests)] == ["a", "b"]


def test_one_run_at_a_time_writes_a_file(tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "out"), pytest.raises(InvalidRequest, match="another run"):
        AnswerFile(tmp_path / "out")


@given(
    whole=st.lists(st.text(min_size=1, max_size=5), max_size=5, unique=True),
    text=st.text(max_size=70_000),
    data=st.data(),
)
def test_a_torn_last_line_is_removed_and_whole_lines_stay(
    whole: list[str], text: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("answers") / "out"
    with AnswerFile(path) as file:
        for custom_id in whole:
            file.append({"id": "", "custom_id": custom_id, "response": None})
        before = path.stat().st_size
        file.append({"id": "", "custom_id": "torn", "response": {"body": text}})
    os.truncate(path, data.draw(st.integers(before, path.stat().st_size - 1)))
    with AnswerFile(path) as file:
        assert [custom_id for custom_id in whole if file.has(custom_id)] == whole
        file.append({"id": "", "custom_id": "one more line", "response": None})
    assert [json.loads(each)["custom_id"] for each in path.read_bytes().splitlines()] == [*whole, "one more line"]


def test_a_file_that_takes_no_more_is_named_and_keeps_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "out"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with AnswerFile(path) as file:
        file.append({"id": "", "custom_id": "whole", "response": None})
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
        try:
            with pytest.raises(OSError, match="the same command goes on") as failed:
                file.append({"id": "", "custom_id": "torn", "response": None})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failed.value.filename == str(path)
    with AnswerFile(path) as file:
        assert [file.has("whole"), file.has("torn")] == [True, False]


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("text", [json.dumps(line("a")), "notes", f"{json.dumps(line('a'))}\n{json.dumps(line('b'))}"])
def test_a_file_of_anything_else_is_refused_and_stays_as_it_is(text: str, end: str, tmp_path: Path) -> None:
    """Such as the file of requests, given twice."""
    path = tmp_path / "requests.jsonl"
    path.write_text(text + end)
    with pytest.raises(InvalidRequest, match="line 1: not an answer of a batch"):
        AnswerFile(path)
    assert path.read_text() == text + end


def test_a_request_at_which_the_gateway_hangs_up_is_an_error_and_the_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LONGEST_PAUSE", 0.1)
    gateway = RefusingGateway(most=12, retry_after=0.05, hangs_up_at="request poison")
    lines = [line(str(number)) for number in range(400)]
    lines.insert(3, line("poison"))
    requests, out = written(tmp_path / "requests.jsonl", lines), tmp_path / "answers.jsonl"
    done = called("batch", "run", str(requests), "--out", str(out), "--url", gateway.url)
    gateway.server.shutdown()
    gateway.server.server_close()
    assert done.returncode == 1
    found = answers(out)
    assert len(found) == len(lines)
    assert [name for name, answer in found.items() if answer["error"] is not None] == ["poison"]
    assert "10 connections broke" in found["poison"]["error"]["message"]


def test_fifty_thousand_lines_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    with path.open("w") as file:
        for number in range(50_000):
            file.write(json.dumps(line(f"{number}{'x' * 500}")) + "\n")
    tracemalloc.start()
    assert RequestFile(path).check() == 50_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * MiB < path.stat().st_size


@given(st.lists(st.sampled_from(["answer", "refuse", "wait"]), max_size=200), st.floats(0, 5))
def test_the_limit_grows_by_answers_and_is_halved_by_a_refusal(events: list[str], retry_after: float) -> None:
    concurrency, now = Concurrency(), 0.0
    for event in events:
        while concurrency.wait(now) == 0:
            concurrency.began()
        assert concurrency.open <= concurrency.limit <= MOST or concurrency.wait(now) is None
        before = concurrency.limit
        if event == "wait" or not concurrency.open:
            now += 1.0
        elif event == "answer":
            concurrency.succeeded()
            assert before <= concurrency.limit <= before + 1
        else:
            concurrency.refused(now, retry_after, now)
            assert max(LEAST, before // 2) <= concurrency.limit <= before
            wait = concurrency.wait(now)
            assert wait is None or wait == pytest.approx(retry_after) or wait > retry_after


def test_a_server_that_speaks_another_protocol_ends_the_run(tmp_path: Path) -> None:
    """As the gateway's port of gRPC does."""
    requests = written(tmp_path / "requests.jsonl", [line("a")])
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.sendall(b"\0\0\x18\4\0\0\0\0\0\r\n")
                # Closing with unread input would reset the connection, and the answer could be lost.
                while connection.recv(65536):
                    pass

        threading.Thread(target=answer).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = called("batch", "run", str(requests), "--out", str(tmp_path / "answers.jsonl"), "--url", url)
    assert done.returncode == 1
    assert done.stderr.endswith(f"fairlead: --url: {url[7:]} answers, but is no HTTP server\n")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:99999",
        "http://127.0.0.1:x",
        "http://[::1",
        f"http://{'a' * 70}.invalid",
        "http://127.0.0.1:1/a b",
        "http://127.0.0.1:1/\u00e9",
        "http://user@127.0.0.1:1",
        "http://127.0.0.1:1?x=1",
    ],
)
def test_a_url_that_cannot_be_is_refused_before_anything_is_sent(url: str, tmp_path: Path) -> None:
    requests = written(tmp_path / "requests.jsonl", [line("a")])
    done = called("batch", "run", str(requests), "--out", str(tmp_path / "out"), "--url", url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"fairlead: --url: expected http://HOST:PORT or https://HOST:PORT, got {url!r}")


@pytest.mark.parametrize("key", ["a\nb", "\u20ac"])
def test_a_key_that_no_header_holds_is_refused_and_not_repeated(key: str, tmp_path: Path) -> None:
    requests = written(tmp_path / "requests.jsonl", [line("a")])
    done = called("batch", "run", str(requests), "--out", str(tmp_path / "out"), "--api-key", key)
    assert done.stderr == "fairlead: --api-key: must be printable ASCII\n"


def test_https_to_a_port_without_tls_ends_the_run(url: str, tmp_path: Path) -> None:
    requests = written(tmp_path / "requests.jsonl", [line("a")])
    done = called(
        "batch", "run", str(requests), "--out", str(tmp_path / "out"), "--url", url.replace("http:", "https:")
    )
    assert done.returncode == 1
    assert "fairlead: --url: https to 127.0.0.1:" in done.stderr


def test_answers_of_another_batch_do_not_count_as_done(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with AnswerFile(out) as file:
        file.append({"id": "", "custom_id": "another batch's", "response": None})
    requests = written(tmp_path / "requests.jsonl", [line("a")])
    assert "1 of 1 done" in called("batch", "run", str(requests), "--out", str(out), "--url", url).stderr
