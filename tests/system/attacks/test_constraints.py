"""Constraints of one tenant that take long to compile or to follow: what they cost the others."""

import asyncio
import itertools
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.outcomes import Outcome
from fairlead.v1 import common_pb2, worker_pb2
from serving.rpc.channel import open_channel
from tests.services import Process, StartService
from tests.system.attacks.report import Report
from tests.system.attacks.sizes import Sizes
from tests.unit.local_worker.test_constraint_checker import AMBIGUOUS, excessive
from tests.unit.local_worker.test_worker_process import Gateway, submit

SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}}}'
CALLS = 'start: "<tool_call>" %json {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}}'


@pytest.fixture
def worker(start_service: StartService, request: pytest.FixtureRequest) -> Process:
    """With steps of as many seconds as the test asks for."""
    seconds = getattr(request, "param", 0.0)
    return start_service("local_worker", scheduler="127.0.0.1:1", drain_seconds=5, engine=f"fake:{seconds}")


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


ATTACKS: dict[str, dict[str, Any]] = {
    "a pattern of 15 bytes": {"regex": "(a?){500}a{500}"},
    "an ambiguous grammar": {"grammar": AMBIGUOUS.texts[0]},
}
CONTROL = "no constraint"
TARGET = 1.5  # times as long as beside the control
MEASURED_AGAIN = 4  # times as many calls, where a few have missed the target
ATTACKERS = 30
TOKENS = 20


async def gaps(victim: Gateway, calls: int, name: str) -> list[float]:
    """The mean time between two tokens of each of the victim's calls, in seconds."""
    means = []
    for number in range(calls):
        message = asked(f"{name} {number}", "ann")
        message.sampling.max_tokens, message.sampling.ignore_eos, message.tokens_per_message = TOKENS, True, 1
        await victim.send(message)
        times: list[float] = []
        async for events in victim.events():
            times += [time.monotonic()] * len(events.tokens)
            if events.ended:
                break
        means.append((times[-1] - times[0]) / (TOKENS - 1))
    return means


async def attacked_by(attacker: Gateway, name: str, sampling: dict[str, Any]) -> None:
    """Keep 30 calls running, of users of one tenant."""
    numbers = itertools.count()

    def call() -> worker_pb2.Submit:
        number = next(numbers)
        message = asked(f"{name} {number}", f"eve/{number % ATTACKERS}", **sampling)
        message.sampling.max_tokens = 200
        return message

    await attacker.send(*(call() for _ in range(ATTACKERS)))
    async for events in attacker.events():
        if events.ended:
            await attacker.send(*(call() for _ in events.ended))


async def beside(worker: Process, name: str, calls: int) -> float:
    """The median of the seconds between a victim's tokens beside an attack, or beside calls without a constraint."""
    async with open_channel(worker.address) as one, open_channel(worker.address) as other:
        attack = asyncio.create_task(attacked_by(Gateway(one), name, ATTACKS.get(name, {})))
        await gaps(Gateway(other), 1, f"first beside {name}")
        median = statistics.median(await gaps(Gateway(other), calls, f"beside {name}"))
        attack.cancel()
    return median


@pytest.mark.parametrize("worker", [0.01], indirect=True)
async def test_masks_that_take_long_do_not_slow_other_tenants(worker: Process, report: Report, sizes: Sizes) -> None:
    """How long the time between tokens is, is looked at by `make attack`, which measures many calls."""
    is_measured, times = sizes.streams > Sizes().streams, dict[str, float]()
    for name in ATTACKS:
        for calls in (sizes.streams, MEASURED_AGAIN * sizes.streams):
            control = await beside(worker, CONTROL, calls)
            attacked = await beside(worker, name, calls)
            times[name] = attacked / control
            if not is_measured or times[name] <= TARGET:
                break
        rate = f"{1000 * attacked:.1f} ms between a victim's tokens, {1000 * control:.1f} ms beside the control, calls"
        report.add(f"30 calls with {name}", Counter({rate: calls}))
    worst = max(times, key=times.__getitem__)
    what = f"time between a caller's tokens beside 30 calls with {worst}"
    report.target(what, f"{times[worst]:.2f} times that beside 30 calls without a constraint", f"at most {TARGET}")
    assert not is_measured or times[worst] <= TARGET, times


async def test_a_worker_stops_whatever_is_compiled(worker: Process, sessions: tuple[Gateway, Gateway]) -> None:
    attacker, honest = sessions
    await flood(attacker, 3)
    await honest.send(asked("free", "ann"))
    await honest.until_ended("free")
    assert worker.terminate() == 0
