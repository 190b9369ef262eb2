"""Constraints are compiled where they can be ended, in turns of tenants, and what is known waits for nothing."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import local_worker.sandbox
from fairlead.errors import ClientLimit, InvalidRequest
from local_worker.compilations import FairTurns
from local_worker.constraint_checker import ConstraintChecker
from local_worker.engine.mask_processes import MOST_PROCESSES, MaskProcesses, SandboxedOutput
from local_worker.sandbox import Sandbox
from local_worker.sandbox_process import MaskRequest
from local_worker.tokenizer import ByteTokenizer
from serving.constraint import Constraint


def excessive(number: int = 0) -> Constraint:
    """A schema whose patterns are compared with each other: minutes of work, in parts that are small alone."""
    parts = [
        {"type": "object", "patternProperties": {f"^{number}w{part}{key:03d}[a-z]{{1,20}}$": {} for key in range(40)}}
        for part in range(20)
    ]
    return Constraint("json_schema", (json.dumps({"allOf": parts}),))


RULES = [f'r{number}: e e "a" | e' for number in range(60)]
AMBIGUOUS = Constraint(  # its masks take longer than a step
    "grammar", ("\n".join(["start: e", 'e: "b" | ' + " | ".join(f"r{number}" for number in range(60)), *RULES]),)
)


def forks(sandbox: Sandbox) -> list[str]:
    """The processes that compile now."""
    assert sandbox._process is not None
    pid = sandbox._process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def until_free(sandbox: Sandbox) -> None:
    async with asyncio.timeout(30):
        while forks(sandbox):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
async def checker() -> AsyncIterator[ConstraintChecker]:
    checker = ConstraintChecker(Sandbox(ByteTokenizer().vocabulary))
    yield checker
    checker.close()


async def test_a_compilation_that_takes_too_long_is_ended_and_the_next_one_runs(
    checker: ConstraintChecker,
) -> None:
    with pytest.raises(InvalidRequest, match="takes more than 1 s of processor time") as refused:
        await checker.check(excessive())
    assert refused.value.field == "sampling.json_schema"
    await until_free(checker._sandbox)
    small = Constraint("regex", ("a+",))
    assert not checker.is_known(small)
    await checker.check(small)
    assert checker.is_known(small)
    assert checker.is_known(excessive()), "it is not compiled again"


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (Constraint("regex", ("(",)), "unclosed group"),
        (Constraint("grammar", ("start: missing",)), "unknown name"),
        (Constraint("json_schema", ("{",)), "Expecting property name"),
        (
            Constraint("json_schema", (json.dumps({"patternProperties": {f"{key}": {} for key in range(101)}}),)),
            "patternProperties: at most 100 of one object, got 101",
        ),
        (
            Constraint("json_schema", (json.dumps({"items": {"allOf": [{"anyOf": [{}] * 11}] * 3}}),)),
            "at most 1000 combinations of the alternatives in its schemas, got 1331",
        ),
    ],
)
async def test_errors_name_the_field_and_the_reason(
    checker: ConstraintChecker, constraint: Constraint, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        await checker.check(constraint)
    assert refused.value.field == constraint.field


async def until_forked(sandbox: Sandbox) -> None:
    async with asyncio.timeout(60):
        while sandbox._process is None or not forks(sandbox):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_caller_who_leaves_ends_the_compilation(
    checker: ConstraintChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_worker.sandbox, "CPU_SECONDS", 60.0)
    leaving = asyncio.create_task(checker.check(excessive()))
    await until_forked(checker._sandbox)
    leaving.cancel()
    await until_free(checker._sandbox)
    assert not checker.is_known(excessive())
    await checker.check(Constraint("regex", ("a+",)))


async def test_a_process_that_has_ended_is_replaced(checker: ConstraintChecker) -> None:
    await checker.check(Constraint("regex", ("a+",)))
    process = checker._sandbox._process
    assert process is not None
    process.kill()
    process.wait()
    await checker.check(Constraint("regex", ("b+",)))


async def test_a_worker_without_the_library_refuses_by_name(
    checker: ConstraintChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(InvalidRequest, match=r"sampling\.choice: is not supported by this worker"):
        await checker.check(Constraint("choice", ("a",)))


def test_memory_and_time_of_an_output_are_bounded_and_those_of_its_tenant_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_worker.sandbox, "MEMORY_BYTES", 100 << 20)
    sandbox = Sandbox(ByteTokenizer().vocabulary)
    processes = MaskProcesses(sandbox)
    other = SandboxedOutput(processes, "eve", Constraint("regex", ("a+",)))
    first = other.mask([])
    assert first.allowed is not None
    for dear, tokens in ((excessive(), []), (Constraint("regex", ("a+",)), [97] * 20_000_000)):
        refused = SandboxedOutput(processes, "eve", dear).mask(tokens)
        assert refused.allowed is None
        assert "takes more than 1 s of processor time, or 1024 MiB" in refused.failure
        allowed = other.mask([97]).allowed
        assert allowed is not None, "it is followed by another process, from its beginning on"
    assert SandboxedOutput(processes, "eve", Constraint("regex", ("a+",))).mask([97, 97]).allowed == allowed
    processes.close()
    sandbox.close()


def test_a_message_that_arrives_while_a_mask_is_made_does_not_end_the_process() -> None:
    """Nor does the signal of what was sent before, which can come when it has been read."""
    sandbox = Sandbox(ByteTokenizer().vocabulary)
    socket, life = sandbox.connect()
    with Connection(socket.detach()) as connection, life:
        for number in range(100):
            connection.send(MaskRequest(number, Constraint("regex", (f"a{{{number}}}b",)), (), ()))
            if number:
                assert connection.recv().allowed, "of the one before, while this one arrived"
    sandbox.close()


def test_processes_are_as_many_as_are_allowed() -> None:
    sandbox = Sandbox(ByteTokenizer().vocabulary)
    processes = MaskProcesses(sandbox)
    outputs = [
        SandboxedOutput(processes, f"t{number}", Constraint("regex", ("ab+",))) for number in range(MOST_PROCESSES + 3)
    ]
    for tokens in ([], [97], [98]):
        masks = [output.mask(tokens).allowed for output in outputs]
        assert len({*masks}) == 1, "also of those whose process was replaced"
    assert len(processes._processes) == MOST_PROCESSES
    processes.close()
    sandbox.close()


async def test_a_tenant_has_one_turn_at_once_whatever_its_users_do_and_the_others_go_first() -> None:
    turns, order, may_end = FairTurns(2, 10), list[str](), asyncio.Event()

    async def work(client: str) -> None:
        async with turns.turn(client, 10):
            order.append(client)
            await may_end.wait()

    async with asyncio.TaskGroup() as tasks:
        for client in ("eve/1", "eve/1", "eve/2", "ann", "bob"):
            tasks.create_task(work(client))
        for _ in range(10):
            await asyncio.sleep(0)
        assert order == ["eve/1", "ann"]
        may_end.set()
    assert order[2:] == ["bob", "eve/2", "eve/1"], "of a tenant's users the one that has had none is next"


async def test_turns_that_are_cancelled_leave_no_trace_and_too_many_are_refused() -> None:
    turns = FairTurns(1, 2)

    async def work() -> None:
        async with turns.turn("eve", 1):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(ClientLimit, match="'eve': 2 constraints of its tenant wait"):
        await work()
    for task in (tasks[1], tasks[0], tasks[2]):
        task.cancel()
    await asyncio.wait(tasks)
    async with asyncio.timeout(60), turns.turn("ann", 1):
        pass
    turns._queue.check_invariants()
    assert not turns._queue._first
