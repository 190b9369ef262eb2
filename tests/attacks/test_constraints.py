"""Constraints of one tenant that take long to compile or to follow: what they cost the others."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.outcomes import Outcome
from fairlead.v1 import common_pb2, worker_pb2
from serving.rpc.channel import open_channel
from tests.attacks.report import Report
from tests.local_worker.test_constraint_compiler import excessive
from tests.local_worker.test_worker_process import Gateway, submit
from tests.services import Process, StartService

SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}}}'
CALLS = 'start: "<tool_call>" %json {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}}'


@pytest.fixture
def worker(start_service: StartService) -> Process:
    return start_service("local_worker", engine="fake", scheduler="127.0.0.1:1", drain_seconds=5)


@pytest.fixture
async def sessions(worker: Process) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """The attacker's and the honest one's."""
    async with open_channel(worker.address) as one, open_channel(worker.address) as other:
        yield Gateway(one), Gateway(other)


def asked(request_id: str, client: str, **sampling: object) -> worker_pb2.Submit:
    message = submit(request_id, max_tokens=4)
    message.client = client
    message.sampling.MergeFrom(common_pb2.SamplingParams(**sampling))  # type: ignore[arg-type]
    return message


async def flood(attacker: Gateway, first: int) -> None:
    """Submit two schemas that would take minutes, by users of one tenant."""
    await attacker.send(
        *(
            asked(f"dear{number}", f"eve/{number}", json_schema=excessive(number).texts[0])
            for number in range(first, first + 2)
        )
    )


HONEST: dict[str, dict[str, Any]] = {
    "known": {"json_schema": SCHEMA},
    "any object": {"json_object": True},
    "a required call": {"grammar": CALLS},
    "free": {},
}


async def test_other_tenants_constraints_are_compiled_beside_those_that_take_long(
    sessions: tuple[Gateway, Gateway], report: Report
) -> None:
    attacker, honest = sessions
    await honest.send(asked("first", "ann", json_schema=SCHEMA))
    await honest.until_ended("first")
    await flood(attacker, 0)
    new: dict[str, dict[str, Any]] = {"new": {"json_schema": '{"type":"object","properties":{"b":{"type":"integer"}}}'}}
    for name, sampling in (HONEST | new).items():
        await honest.send(asked(name, "ann", **sampling))
        [(_, _, end)] = (await honest.until_ended(name)).values()
        assert Outcome(end.outcome) is Outcome.COMPLETED, (name, end.message)
    refused = [end for _, _, end in (await attacker.until_ended("dear0", "dear1")).values()]
    ends = Counter(Outcome(end.outcome) for end in refused)
    report.add("schemas that take minutes to compile", Counter({end.name: count for end, count in ends.items()}))
    assert {*ends} == {Outcome.REJECTED_INVALID}
    assert all("takes more than 1 s of processor time" in end.message for end in refused)


async def test_a_worker_stops_whatever_is_compiled(worker: Process, sessions: tuple[Gateway, Gateway]) -> None:
    attacker, honest = sessions
    await flood(attacker, 3)
    await honest.send(asked("free", "ann"))
    await honest.until_ended("free")
    assert worker.terminate() == 0
