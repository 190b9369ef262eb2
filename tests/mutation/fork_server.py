"""Run tests many times, each time in a fork of a pytest that has imported what every run needs.

The pytest of this process stops before it collects tests: it has loaded its plugins, the libraries, tests/conftest.py
and the modules that its arguments name, but no core that is mutated. A fork of it begins to collect within
milliseconds; a pytest of its own takes 1.1 s, most of it imports.

Each line of the standard input is a JSON object with the `tests` to run, an expression `keyword` that their names
match, the tests to run `first`, the largest number of `examples` that Hypothesis draws for a test, and a limit of
processor time, `seconds`. A line of the standard output answers it with `status`, the exit status of pytest or null
beyond the limit, the `seconds` that the run took, and its `output`. Processor time is the same on a machine that has
other work; pytest-timeout ends a run that waits.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
from typing import IO, Any

import pytest
from hypothesis import settings

LIBRARIES = (
    "grpc",
    "hypothesis.stateful",
    "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc",
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc",
    "redis.asyncio",
    "transformers.utils.chat_parsing",
    "yaml",
)
PYTEST = [
    *("-q", "-x", "-s", "-r", "fE", "--tb=no", "--assert=plain", "-p", "no:cacheprovider"),
    *("--hypothesis-profile", "mutation", "--hypothesis-seed", "0"),
]


class ForkServer:
    """A plugin that answers all requests where pytest would collect tests; the process ends with the requests.

    Before that it imports `modules` of the project: those that no mutant changes.
    """

    def __init__(self, modules: list[str], answers: IO[str]) -> None:
        self._modules = modules
        self._answers = answers
        self._first: list[str] = []

    def pytest_collection(self, session: pytest.Session) -> bool | None:
        """Answer one request after the other; in a fork return None, so that pytest runs the request's tests."""
        for module in self._modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()
        for line in sys.stdin:
            request = json.loads(line)
            with tempfile.TemporaryFile("w+") as output:
                child = os.fork()
                if child == 0:
                    os.setpgid(0, 0)  # a session of its own would have a share of the processors of its own
                    resource.setrlimit(resource.RLIMIT_CPU, (request["seconds"], request["seconds"]))
                    for stream in (sys.stdout, sys.stderr):
                        os.dup2(output.fileno(), stream.fileno())
                    session.config.args = request["tests"]
                    session.config.option.keyword = request["keyword"]
                    session.config.option.markexpr = request["marks"]
                    self._first = request["first"]
                    draw_at_most(request["examples"])
                    return None
                answer = ended(child)
                output.seek(0)
                print(json.dumps({**answer, "output": output.read()}), file=self._answers, flush=True)
        os._exit(0)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the tests to run first before all others."""
        items.sort(key=lambda item: item.nodeid not in self._first)


def draw_at_most(examples: int) -> None:
    """Let no test of this process draw more `examples`, whatever its own settings are."""
    own = vars(settings)["max_examples"].fget
    lower = property(lambda test: min(own(test), examples))
    type.__setattr__(settings, "max_examples", lower)  # Hypothesis has no option that wins over a test's own settings


def ended(child: int) -> dict[str, Any]:
    """Wait for a run to end; return its exit status, None beyond the limit, and its seconds of processor time."""
    _, status, usage = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has started
    code = os.waitstatus_to_exitcode(status)
    is_over = -code in (signal.SIGXCPU, signal.SIGKILL)
    return {"status": None if is_over else code, "seconds": usage.ru_utime + usage.ru_stime}


if __name__ == "__main__":
    sys.dont_write_bytecode = True  # a mutant may have the size and the second of the one before
    for library in LIBRARIES:
        importlib.import_module(library)
    requests_answered = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what pytest prints before the first fork
    sys.exit(pytest.main(PYTEST, plugins=[ForkServer(sys.argv[1:], requests_answered)]))
