"""What the page says of levels of fairness, from what workers and the scheduler report."""

import pytest

from fairlead.v1 import scheduler_pb2
from gateway.core.service_history import ServiceHistory
from gateway.page import snapshot


def answer_of(levels: tuple[str, ...], **services: float) -> scheduler_pb2.ListClientsResponse:
    """One worker, where every client waits."""
    answer = scheduler_pb2.ListClientsResponse()
    load = scheduler_pb2.Load(fairness_bound=100.0, fairness_gap=50.0, service_rate=20.0)
    load.levels.extend(scheduler_pb2.LevelGap(level=level, gap=50.0 / 2**depth) for depth, level in enumerate(levels))
    model = scheduler_pb2.ModelInfo(name="m")
    answer.cluster.members.add(worker="w", instance="1", model=model, models=[model], load=load)
    for name, service in services.items():
        client = name.replace("_", "/")
        answer.clients.add(client=client, service=service, weighted_service=service, waiting=[1])
    return answer


def observed(*answers: scheduler_pb2.ListClientsResponse) -> ServiceHistory:
    history = ServiceHistory()
    for now, answer in enumerate(answers):
        members = answer.cluster.members
        history.observe(float(now), frozenset({"1"}), snapshot.samples(answer), snapshot.bound(members))
    return history


@pytest.mark.parametrize(
    ("levels", "ahead"),
    [
        ((), [0, 20, 890]),
        (("user",), [0, 20, 890]),
        (("tenant", "user"), [0, 20, 0]),
        (("tenant",), [0, 0, 0]),
    ],
    ids=["unknown", "users", "tenants and users", "tenants alone"],
)
def test_a_client_is_compared_with_its_siblings(levels: tuple[str, ...], ahead: list[int]) -> None:
    answer = answer_of(levels, s_a=10.0, s_b=30.0, t_a=900.0)
    said = snapshot.clients(observed(answer_of(levels, s_a=0.0, s_b=0.0, t_a=0.0), answer), answer)
    assert [client["ahead"] for client in said.values()] == ahead


def test_tenants_have_the_sums_of_their_clients() -> None:
    answer = answer_of(("tenant", "user"), s_a=10.0, s_b=30.0, t_a=60.0)
    said = snapshot.tenants(observed(answer_of((), s_a=0.0, s_b=0.0, t_a=0.0), answer), answer)
    assert list(said) == ["t", "s"]
    assert said["s"] == {"users": 2, "service": 40, "now": 0.4, "minute": 0.4, "waiting": 2, "running": 0}
    alone = answer_of(("tenant", "user"), s_a=10.0, s_b=30.0)
    assert snapshot.tenants(observed(alone), alone) == {}


def test_the_gap_at_each_level_is_a_part_of_the_bound_which_is_also_in_seconds() -> None:
    answer = answer_of(("tenant", "user"), s_a=10.0)
    worker = snapshot.workers(answer.cluster.members, [], [])["w"]
    assert (worker["bound"], worker["bound_seconds"], worker["levels"]) == (100, 5.0, "tenant 50.0%, user 25.0%")
    assert snapshot.fairness(observed(answer), answer.cluster.members)["levels"] == "tenant, user"


def test_pages_and_parts_are_those_of_all_workers_and_evictions_tell_who_needed_them() -> None:
    answer = answer_of(("tenant", "user"), s_a=10.0, t_b=30.0)
    load = answer.cluster.members[0].load
    load.client_pages.add(name="s/a", pages=3.6, part=8)
    load.tenant_pages.add(name="t", pages=2.2, part=8)
    load.evicted_pages.add(taker="t", owner="s", pages=5)
    history = observed(answer)
    clients, tenants = snapshot.clients(history, answer), snapshot.tenants(history, answer)
    assert (clients["s/a"]["pages"], clients["s/a"]["part"]) == (4, 8)
    assert "pages" not in clients["t/b"], "no worker tells"
    assert (tenants["t"]["pages"], tenants["t"]["part"]) == (2, 8)
    assert snapshot.evicted(answer.cluster.members) == {"t": {"s": 5}}
