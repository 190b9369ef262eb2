"""A scheduler or a gateway that dies: who depends on it goes on, and nothing is left behind."""

import itertools

import grpc

from fairlead.v1 import throttling_pb2, throttling_pb2_grpc
from serving.rpc.channel import secret_metadata
from tests.services import SECRET, Process, Stack, eventually
from tests.system.faults.load import Load, assert_all_completed, caller, request_for

STEP = 0.01


def placements(gateway: Process) -> dict[str, int]:
    """How the gateway's placements were decided, as operators are told."""
    with grpc.insecure_channel(gateway.address) as channel:
        account = throttling_pb2_grpc.ThrottlingStub(channel).Account(
            throttling_pb2.AccountRequest(), metadata=secret_metadata(SECRET)
        )
    return {placement.reason: placement.count for placement in account.placements if placement.count}


def test_while_no_scheduler_can_be_reached_gateways_choose_and_say_so(stack: Stack) -> None:
    stack.worker("a", engine=f"fake:{STEP}")
    gateway = stack.gateway(throttle="none")
    stack.scheduler.kill()
    gateway.wait_for("scheduler is away")
    with Load(gateway.address, threads=2, max_tokens=5) as load:
        load.more(4)
    assert_all_completed(load)
    assert placements(gateway).keys() == {"no_scheduler"}


def test_a_scheduler_killed_under_load_and_started_again(stack: Stack) -> None:
    for name in ("a", "b"):
        stack.worker(name, engine=f"fake:{STEP}")
    gateway = stack.gateway(throttle="none")
    with Load(gateway.address, threads=4, max_tokens=20) as load:
        load.more(8)
        stack.restart_scheduler()
        load.more(8)
        eventually(lambda: len(stack.status().cluster.members) == 2, "the workers attach again")
        eventually(lambda: len(gateway.logged("follows scheduler")) == 2, "the gateway follows the new one")
        load.more(8)
    assert_all_completed(load)
    assert placements(gateway)["scheduler"] > 0
    assert placements(gateway).keys() <= {"scheduler", "no_scheduler", "settling"}, "nobody was refused"
    assert {line["attempts"] for line in gateway.logged("call ended")} == {1}


def test_calls_of_a_dead_gateway_are_given_up(stack: Stack) -> None:
    stack.worker("a", engine=f"fake:{STEP}")
    doomed, survivor = stack.gateway(throttle="none"), stack.gateway(throttle="none")
    with caller(doomed.address) as stub:
        calls = [stub.Generate(request_for(f"Story {number}", 4000), timeout=60) for number in range(2)]
        for call in calls:
            list(itertools.islice(call, 2))
        eventually(lambda: stack.requests() == 2, "both run")
        doomed.kill()
        eventually(lambda: stack.requests() == 0, "its requests are aborted")
    with Load(survivor.address, threads=2, max_tokens=10) as load:
        load.more(4)
    assert_all_completed(load)
