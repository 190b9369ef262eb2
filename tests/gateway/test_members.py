"""What the gateway believes about the cluster."""

import pytest

from fairlead.errors import InvalidRequest, Unavailable
from fairlead.v1 import scheduler_pb2
from gateway.upstream.members import Members


def member(worker: str, model: str = "m", context: int = 100, *, draining: bool = False) -> scheduler_pb2.Member:
    info = scheduler_pb2.ModelInfo(name=model, max_model_tokens=context, kv_tokens=1000, vocab_size=10)
    return scheduler_pb2.Member(worker=worker, model=info, load=scheduler_pb2.Load(draining=draining))


def state(*members: scheduler_pb2.Member, overloaded: str = "") -> scheduler_pb2.ClusterState:
    pools = [scheduler_pb2.Pool(model=overloaded, overloaded=True)] if overloaded else []
    return scheduler_pb2.ClusterState(members=members, pools=pools)


def names(members: Members) -> list[str]:
    return [known.worker for known in members.all()]


def test_a_restarted_scheduler_takes_nobody_away_and_a_settled_one_does() -> None:
    members = Members()
    members.replace(state(member("b"), member("a")))
    assert names(members) == ["a", "b"]
    members.merge(state(member("c")))
    assert names(members) == ["a", "b", "c"]
    members.replace(state(member("c")))
    assert names(members) == ["c"]


def test_draining_workers_get_nothing_new() -> None:
    members = Members()
    members.replace(state(member("a", draining=True), member("b"), member("c", "other")))
    assert [known.worker for known in members.serving("m")] == ["b"]


def test_overload_is_per_model_and_unknown_without_the_scheduler() -> None:
    members = Members()
    members.replace(state(member("a"), overloaded="m"))
    assert (members.overloaded("m"), members.overloaded("other")) == (True, False)
    members.forget_overload()
    assert not members.overloaded("m")


def test_a_model_is_as_large_as_its_smallest_worker() -> None:
    members = Members()
    members.replace(state(member("a", context=100), member("b", context=50)))
    assert members.resolve("m").max_model_tokens == 50


def test_names_of_models() -> None:
    members = Members()
    with pytest.raises(Unavailable, match="no worker"):
        members.resolve("m")
    members.replace(state(member("a")))
    assert members.resolve("").name == "m"
    members.replace(state(member("a"), member("b", "other")))
    with pytest.raises(InvalidRequest, match="must name one of the models; models served: m, other"):
        members.resolve("")
    with pytest.raises(InvalidRequest, match="model: unknown model 'gpt'; models served: m, other"):
        members.resolve("gpt")
