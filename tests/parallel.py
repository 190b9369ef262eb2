"""Run the tests in several processes: forks of the one that has collected them, each of which takes file after file.

Collecting takes 10 s of processor time, two thirds of it for importing torch and transformers. Processes that begin
anew, as those of pytest-xdist do, would all spend it. The tests of a file stay together because they share fixtures,
and the files that take longest are taken first, so that none of them is left alone at the end.
"""

import os
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

# The files that take longest, the longest first.
LONGEST = (
    "tests/system/vllm/test_exactness.py",
    "tests/system/vllm/test_worker.py",
    "tests/system/vllm/test_flood.py",
    "tests/system/deploy/test_rehearsal.py",
    "tests/system/deploy/test_production_rehearsal.py",
    "tests/system/deploy/test_upgrades_rehearsal.py",
    "tests/system/install/*",
    "tests/unit/gateway/test_failover.py",
    "tests/unit/cli/test_up.py",
    "tests/unit/cli/test_demo.py",
    "tests/unit/local_worker/engine/test_exactness.py",
    "tests/unit/local_worker/engine/test_default_model.py",
    "tests/unit/local_worker/core/test_batcher.py",
    "tests/unit/local_worker/core/test_classes.py",
    "tests/unit/local_worker/core/test_fair_slices.py",
    "tests/unit/lab/bench/test_gpu_quick.py",
    "tests/unit/lab/rehearsal/test_*.py",
    "tests/unit/serving/test_waiting_calls.py",
)
# Folders whose files share what takes long to make: a distribution that is built, a browser that is started.
TOGETHER = ("tests/system/install/*", "tests/unit/gateway/page/*")

Tests = list[pytest.Item]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("general").addoption(
        "--parallel", action="store_true", help="run in four processes more than there are cores, at most seven"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests, unless one process is enough or pytest has to tell why some were not collected."""
    options = session.config.option
    if not options.parallel or options.collectonly or session.testsfailed:
        return None
    ParallelRun(session, files_of(session.items)).run()
    return True


def files_of(items: Sequence[pytest.Item]) -> deque[Tests]:
    """Return the tests of each file, or of each folder of TOGETHER, the longest first."""

    def together(item: pytest.Item) -> Path:
        return item.path.parent if any(map(item.path.match, TOGETHER)) else item.path

    def place(tests: Tests) -> int:
        return next((place for place, name in enumerate(LONGEST) if tests[0].path.match(name)), len(LONGEST))

    return deque(sorted([[*tests] for _, tests in groupby(items, key=together)], key=place))


class ParallelRun:
    """The processes of one run, seen from the one that collected: they ask for files and report."""

    def __init__(self, session: pytest.Session, files: deque[Tests]) -> None:
        self._session = session
        self._hook = session.config.hook
        self._files = files
        self._indexes = {item: index for index, item in enumerate(session.items)}
        self._unfinished = dict.fromkeys(item.nodeid for item in session.items)
        self._processes: dict[Connection, int] = {}

    def run(self) -> None:
        """Run all files; raise session.Interrupted if a process ended before its tests."""
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all processes
        try:
            # The tests wait for services and downloads half of their time.
            for _ in range(min(len(os.sched_getaffinity(0)) + 4, 7, len(self._files))):
                self._fork()
            while self._processes:
                for connection in self._processes.keys() & wait(self._processes):
                    self._receive(connection)
        finally:
            for connection, process in self._processes.items():
                connection.close()
                os.waitpid(process, 0)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._unfinished:
            raise self._session.Interrupted(
                f"a process ended, {len(self._unfinished)} tests did not: {[*self._unfinished]}"
            )

    def _fork(self) -> None:
        ours, theirs = Pipe()
        process = os.fork()
        if process == 0:
            for connection in (ours, *self._processes):
                connection.close()
            run_files(self._session, theirs)
        theirs.close()
        self._processes[ours] = process

    def _receive(self, connection: Connection) -> None:
        try:
            name, arguments = connection.recv()
        except EOFError:
            os.waitpid(self._processes.pop(connection), 0)
            return
        if name == "next":
            stop = self._session.shouldfail or self._session.shouldstop
            file = self._files.popleft() if self._files and not stop else []
            connection.send([self._indexes[item] for item in file])
            return
        if name == "pytest_runtest_logfinish":
            del self._unfinished[arguments["nodeid"]]
        if name == "pytest_runtest_logreport":
            config = self._session.config
            arguments = {"report": self._hook.pytest_report_from_serializable(config=config, data=arguments)}
        getattr(self._hook, name)(**arguments)


def run_files(session: pytest.Session, connection: Connection) -> NoReturn:
    """Run, in a fork, the files that the first process hands out, and exit; an empty file is the end."""
    try:
        quieten(session.config)
        session.config.pluginmanager.register(Reports(session.config, connection))
        for item, following in pairwise(tests_to_run(session, connection)):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
        session._setupstate.teardown_exact(None)
    except (KeyboardInterrupt, BrokenPipeError, EOFError):  # the first process ends
        session._setupstate.teardown_exact(None)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def tests_to_run(session: pytest.Session, connection: Connection) -> Iterator[pytest.Item | None]:
    """Yield the tests, and None behind them; a file is asked for when the last test of the one before begins."""
    while True:
        connection.send(("next", None))
        file = connection.recv()
        if not file:
            yield None
            return
        for index in file:
            yield session.items[index]


def quieten(config: pytest.Config) -> None:
    """Have a fork print nothing, and capture what its tests print apart from the other processes."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    capture.start_global_capturing()


class Reports:
    """A plugin of the forks that passes on what pytest reports of each test."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        """Pass it on."""
        self._connection.send(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass it on."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("pytest_runtest_logreport", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: object) -> None:
        """Pass it on."""
        self._connection.send(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))
