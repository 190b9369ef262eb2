"""A process whose log nobody reads goes on, and says later what was lost."""

import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from serving.logs import MOST_BYTES, DescriptorHandler, JsonFormatter, LogRedaction

LINES = 3 * MOST_BYTES // 1000
Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    yield reader, writer
    for end in (reader, writer):
        with contextlib.suppress(OSError):  # the test has closed it
            os.close(end)


def handler(pipe: Pipe) -> DescriptorHandler:
    made = DescriptorHandler(pipe[1])
    made.setFormatter(JsonFormatter())
    return made


def say(made: DescriptorHandler, number: int, size: int = 1000) -> None:
    record = logging.LogRecord("test", logging.INFO, "", 0, "x" * size, (), None)
    record.number = number
    made.handle(record)


def read_to_the_end(pipe: Pipe, made: DescriptorHandler) -> list[dict[str, object]]:
    """What has been written, as JSON lines; ends the writing side."""
    received = bytearray()

    def read() -> None:
        while part := os.read(pipe[0], 65536):
            received.extend(part)

    reading = threading.Thread(target=read)
    reading.start()
    while (writer := made._writer) is not None:
        writer.join()
    os.close(pipe[1])
    reading.join()
    return [json.loads(line) for line in received.splitlines()]


def test_nothing_waits_for_a_reader_and_what_is_lost_is_counted(pipe: Pipe) -> None:
    made = handler(pipe)
    for number in range(LINES):
        say(made, number)
    *lines, last = read_to_the_end(pipe, made)
    assert [line["number"] for line in lines] == list(range(len(lines))), "in order"
    assert len(lines) > MOST_BYTES // 1200
    assert last["lines"] == LINES - len(lines)


def test_long_lines_are_whole_and_in_order(pipe: Pipe) -> None:
    made = handler(pipe)
    for number in range(20):
        say(made, number, size=100 if number % 3 else 100_000)
    assert [line["number"] for line in read_to_the_end(pipe, made)] == list(range(20))


def test_a_reader_that_is_gone_is_no_trouble(pipe: Pipe) -> None:
    made = handler(pipe)
    os.close(pipe[0])
    for number in range(100):
        say(made, number)
    made.close()


def test_callers_that_have_gone_leave_no_traceback() -> None:
    """gRPC's core logs one for each status that came too late, and any caller can make it."""
    said = logging.makeLogRecord({"msg": "ExecuteBatchError raised in core by servicer method [/a.B/C]"})
    assert not LogRedaction().filter(said)
    assert LogRedaction().filter(logging.makeLogRecord({"msg": "Unexpected [ValueError] raised by servicer method"}))
