"""Constraints are compiled where they can be ended, in turns of tenants, and what is known waits for nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import ClientLimit, InvalidRequest
from local_worker.constraint_compiler import ConstraintCompiler
from local_worker.engine.grammars import Grammars
from local_worker.fair_turns import FairTurns
from local_worker.sandbox import BeyondLimits, Sandbox
from local_worker.tokenizer import ByteTokenizer
from serving.constraint import Constraint


def excessive(number: int = 0) -> Constraint:
    """A schema whose patterns are compared with each other: minutes of work, in parts that are small alone."""
    parts = [
        {"type": "object", "patternProperties": {f"^{number}w{part}{key:03d}[a-z]{{1,20}}$": {} for key in range(40)}}
        for part in range(20)
    ]
    return Constraint("json_schema", (json.dumps({"allOf": parts}),))


GRAMMARS = Grammars(ByteTokenizer().vocabulary)


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
async def compiler() -> AsyncIterator[ConstraintCompiler]:
    compiler = ConstraintCompiler(GRAMMARS)
    yield compiler
    compiler.close()


async def test_what_takes_too_long_is_ended_and_refused_and_the_next_one_is_compiled(
    compiler: ConstraintCompiler,
) -> None:
    with pytest.raises(InvalidRequest, match="takes more than 1 s of processor time") as refused:
        await compiler.compile(excessive())
    assert refused.value.field == "sampling.json_schema"
    await until_free(compiler._sandbox)
    small = Constraint("regex", ("a+",))
    assert await compiler.compile(small) is compiler.known(small)


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
    compiler: ConstraintCompiler, constraint: Constraint, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        await compiler.compile(constraint)
    assert refused.value.field == constraint.field


@pytest.fixture
async def opened() -> AsyncIterator[list[Sandbox]]:
    """Sandboxes that a test opens, to be closed."""
    sandboxes: list[Sandbox] = []
    yield sandboxes
    for sandbox in sandboxes:
        sandbox.close()


def a_sandbox(opened: list[Sandbox], **limits: Any) -> Sandbox:
    opened.append(Sandbox(lambda: GRAMMARS.setup()._replace(**limits)))
    return opened[-1]


async def until_forked(sandbox: Sandbox) -> None:
    async with asyncio.timeout(60):
        while sandbox._process is None or not forks(sandbox):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_caller_who_leaves_ends_the_compilation(opened: list[Sandbox]) -> None:
    sandbox = a_sandbox(opened, cpu_seconds=60.0)
    leaving = asyncio.create_task(sandbox.compile(GRAMMARS.source(excessive())))
    await until_forked(sandbox)
    leaving.cancel()
    await until_free(sandbox)
    assert await sandbox.compile(GRAMMARS.source(Constraint("regex", ("a+",)))) == ""


async def test_memory_is_bounded(opened: list[Sandbox]) -> None:
    sandbox = a_sandbox(opened, memory_bytes=60 << 20)
    assert await sandbox.compile(GRAMMARS.source(Constraint("regex", ("a+",)))) == ""
    with pytest.raises(BeyondLimits):
        await sandbox.compile(GRAMMARS.source(Constraint("regex", ("a+",))) + " " * (50 << 20))


async def test_a_process_that_has_ended_is_replaced(opened: list[Sandbox]) -> None:
    sandbox = a_sandbox(opened)
    source = GRAMMARS.source(Constraint("regex", ("a+",)))
    assert await sandbox.compile(source) == ""
    assert sandbox._process is not None
    sandbox._process.kill()
    sandbox._process.wait()
    assert await sandbox.compile(source) == ""


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
    with pytest.raises(ClientLimit, match="'eve' has 2 constraints that wait"):
        await work()
    for task in (tasks[1], tasks[0], tasks[2]):
        task.cancel()
    await asyncio.wait(tasks)
    async with asyncio.timeout(60), turns.turn("ann", 1):
        pass
    assert not turns._tenants
