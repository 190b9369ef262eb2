"""Structured logs: each record is one line of JSON for a reader that may be slow, or gone."""

import json
import logging
import os
import select
import stat
import threading
from collections import deque

MOST_BYTES = 4 * 2**20  # that wait for the reader
END_SECONDS = 1.0  # for the reader to take what waits when the process ends
LOST = '{{"level": "warning", "message": "log lines were lost: nobody read them", "lines": {lines}}}\n'
GRPC = "grpc._cython.cygrpc"  # the logger of gRPC's core
NOT_UTF_8 = "Invalid encoding"  # the beginning of its message about metadata that is not UTF-8
HAS_ENDED = "ExecuteBatchError raised"  # and about a status for a call that has ended: its caller is gone
QUIET_SECONDS = 60.0
STDERR = 2
# Attributes of every LogRecord. A record's other attributes come from `extra=` and are logged as fields.
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_encode = json.JSONEncoder(default=str).encode


class DescriptorHandler(logging.Handler):
    """Writes each record as a line to `descriptor`, and never waits for its reader.

    A service that writes to a full pipe stands still with all its calls. What a reader has not taken waits in memory,
    and a thread writes it; beyond MOST_BYTES lines are dropped, and a line says how many.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        # A pipe that poll() finds writable takes so many bytes at once (POSIX); a file takes all.
        self._at_once = MOST_BYTES if stat.S_ISREG(os.fstat(descriptor).st_mode) else select.PIPE_BUF
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._waiting: deque[bytes] = deque()
        self._size = 0  # bytes that wait
        self._lost = 0  # lines
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler, which lets only one thread in at a time."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:
            self.handleError(record)
            return
        if not self._waiting and len(line) <= self._at_once and self._poll.poll(0):
            _write(self._descriptor, line)
        elif self._size + len(line) > MOST_BYTES:
            self._lost += 1
        else:
            self._append(line)

    def close(self) -> None:
        """See logging.Handler; gives the reader END_SECONDS."""
        writer = self._writer
        if writer is not None:
            writer.join(END_SECONDS)
        super().close()

    def _append(self, line: bytes) -> None:
        self._waiting.append(line)
        self._size += len(line)
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_waiting, daemon=True)
            self._writer.start()

    def _write_waiting(self) -> None:
        while line := self._next():
            _write(self._descriptor, line)
            self.acquire()
            self._size -= len(self._waiting.popleft())
            self.release()

    def _next(self) -> bytes:
        """Return the next line; empty, and forget the thread, if none waits."""
        self.acquire()
        try:
            if not self._waiting and self._lost:
                self._append(LOST.format(lines=self._lost).encode())
                self._lost = 0
            if not self._waiting:
                self._writer = None
                return b""
            return self._waiting[0]
        finally:
            self.release()


def _write(descriptor: int, data: bytes) -> None:
    """Write all of `data`, unless nobody will read it any more."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line with a JSON object, whose keys include the fields of `extra=`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        line = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line)


class LogRedaction(logging.Filter):
    """Removes metadata, which may hold an API key, from gRPC's log records about metadata that is not UTF-8.

    gRPC logs such metadata verbatim, with a traceback. One record in QUIET_SECONDS passes without them; its field
    `more` is the number of records that were dropped since the previous one. Records about callers that went before
    they got their status, each a traceback, are no news.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        if not message.startswith(NOT_UTF_8):
            return not message.startswith(HAS_ENDED)
        if record.created < self._next:
            self._left_out += 1
            return False
        record.msg, record.args, record.exc_info = "metadata is not UTF-8", (), None
        record.more = self._left_out
        self._next, self._left_out = record.created + QUIET_SECONDS, 0
        return True


def configure_logging(level: str) -> None:
    """Log records of `level` and above as JSON lines on standard error.

    What no line shows is not collected either: thread, process, and the place in the source (Python's logging HOWTO,
    Optimization).
    """
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    handler = DescriptorHandler(STDERR)
    handler.setFormatter(JsonFormatter())
    logging.getLogger(GRPC).addFilter(LogRedaction())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
