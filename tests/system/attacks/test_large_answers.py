"""Answers that are much larger than what asks for them take bounded memory, collected or unread."""

import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.services import Process, Stack, eventually
from tests.system.attacks.report import Memory, Report
from tests.unit.gateway.http.http_client import CHAT, HELLO, TEXT, HttpClient

CHOICES = 128
ANSWERS = 16
HELD = 8  # MiB
MOST_GROWTH = 4 * HELD
LARGEST = {"n": CHOICES, "max_tokens": 400, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.worker("a", model="tiny", kv_tokens=2**18)
    yield stack.gateway(http_listen="127.0.0.1:0", throttle="none", held_outputs_mib=HELD)
    stack.close()


@pytest.fixture(scope="module")
def http(gateway: Process) -> HttpClient:
    return HttpClient(gateway.wait_for("listening")["http_port"])


def test_an_answer_that_is_collected(gateway: Process, http: HttpClient, report: Report) -> None:
    memory = Memory(gateway=gateway)
    refused = http.chat(**LARGEST)
    assert refused.status == 429
    assert "wait to be read or to be complete" in refused.error["message"]
    assert memory.grown < MOST_GROWTH, str(memory)
    report.add(
        "answers of 128 choices with 20 log-probabilities for each token, collected", Counter({"429": 1}), memory
    )
    assert http.chat().status == 200


def test_an_answer_that_nobody_reads(gateway: Process, http: HttpClient, report: Report) -> None:
    memory = Memory(gateway=gateway)
    with http.begin(CHAT, {"messages": HELLO, "stream": True, **LARGEST}) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        eventually(lambda: limited(gateway), "calls of a caller that reads nothing end")
        assert memory.grown < MOST_GROWTH, str(memory)
        report.add("streams of 128 choices with 20 log-probabilities, unread", Counter({"ended": 1}), memory)
        assert http.chat().status == 200


def test_answers_that_nobody_takes(gateway: Process, http: HttpClient, report: Report) -> None:
    """One after the other, each of which would have room alone."""
    memory = Memory(gateway=gateway)
    asked = {**LARGEST, "n": 8, "messages": HELLO}
    with ExitStack() as opened:
        for _ in range(ANSWERS):
            ended = len(gateway.logged("call ended"))
            opened.enter_context(http.begin(CHAT, asked))
            eventually(lambda: len(gateway.logged("call ended")) >= ended + 8, "it is answered or refused")  # noqa: B023
        assert memory.grown < MOST_GROWTH, str(memory)
        refused = Counter(line["outcome"] for line in gateway.logged("call ended")[-8 * ANSWERS :])
        assert refused.keys() > {"COMPLETED"}, "some have no room"
    report.add("answers of 4 MiB that nobody takes", Counter({"bounded": ANSWERS}), memory)
    eventually(lambda: http.chat().status == 200, "there is room again")


def limited(gateway: Process) -> list[dict[str, object]]:
    """The streams that have ended for what they held."""
    calls = gateway.logged("call ended")
    return [line for line in calls if "wait to be read" in line.get("reason", "") and line["output_tokens"] > 100]


def test_an_answer_that_repeats_its_prompt(http: HttpClient) -> None:
    prompts = ["x" * 1024 * 512] * 2
    refused = http.post(TEXT, {"prompt": prompts, "n": CHOICES // 2, "max_tokens": 1, "echo": True})
    assert refused.status == 400
    assert refused.error["param"] == "echo"
    assert json.dumps(refused.json).count("x") < 100
