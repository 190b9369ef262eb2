"""Start and end of every service process: structured logs, uvloop, a clean exit on SIGTERM."""

import asyncio
import gc
import json
import logging
import resource
import signal
import sys
from collections.abc import Awaitable, Callable

import uvloop

from serving.config import ConfigError
from serving.log_handler import DescriptorHandler

STARTING = "starting"
GRPC = "grpc._cython.cygrpc"  # the logger of gRPC's core
NOT_UTF_8 = "Invalid encoding"  # the beginning of its message about metadata that is not UTF-8
QUIET_SECONDS = 60.0
# New objects that start the garbage collector. Reference counts free nearly all that a request needs; with Python's 700
# the collector took about 3 % of a gateway's CPU time.
YOUNG_OBJECTS = 10_000
STDERR = 2
DESCRIPTORS = 65_536
MOST_DIGITS = 640  # of an integer that is read: the time it takes grows with their square. Python allows no lower limit
log = logging.getLogger(__name__)
Serving = Callable[[asyncio.Event], Awaitable[None]]
# Attributes of every LogRecord. A record's other attributes come from `extra=` and are logged as fields.
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_encode = json.JSONEncoder(default=str).encode


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line with a JSON object, whose keys include the fields of `extra=`."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
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
    `more` is the number of records that were dropped since the previous one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging.Filter."""
        if record.name != GRPC or not str(record.msg).startswith(NOT_UTF_8):
            return True
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
    handler.addFilter(LogRedaction())
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def raise_descriptor_limit() -> None:
    """Allow this process as many open files as it may allow itself, up to DESCRIPTORS: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def log_step(step: str) -> None:
    """Log the next step of the process's start before it begins; `fairlead up` shows it."""
    log.info(STARTING, extra={"step": step})


def run(prepare: Callable[[], Serving]) -> int:
    """Prepare a service and run it until it returns; SIGTERM and SIGINT set the event that is passed to it.

    Return the exit status: 0, or 2 after one line on standard error if preparing or serving raised ConfigError.
    """

    raise_descriptor_limit()
    sys.set_int_max_str_digits(MOST_DIGITS)

    async def main(serve: Serving) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        # Objects made at start live as long as the process: frozen, they do not lengthen the collector's pauses.
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        await serve(stop)

    try:
        uvloop.run(main(prepare()))
    except ConfigError as error:
        print(f"configuration: {error}", file=sys.stderr)
        return 2
    return 0
