"""What the gateway believes about the cluster."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fairlead.errors import InvalidRequest, Unavailable
from fairlead.v1 import scheduler_pb2
from gateway.upstream.members import Members
from serving.watched_cluster import WatchedCluster

WORKERS = st.frozensets(st.sampled_from("abc"))


def member(worker: str, *models: str, context: int = 100, draining: bool = False) -> scheduler_pb2.Member:
    """A worker of `models`, by default of `m` alone."""
    infos = [
        scheduler_pb2.ModelInfo(name=model, max_model_tokens=context, kv_tokens=1000, vocab_size=10)
        for model in models or ("m",)
    ]
    load = scheduler_pb2.Load(draining=draining)
    return scheduler_pb2.Member(worker=worker, model=infos[0], models=infos, load=load)


def state(*members: scheduler_pb2.Member, overloaded: str = "") -> WatchedCluster:
    pools = [scheduler_pb2.Pool(model=overloaded, overloaded=True)] if overloaded else []
    watched = WatchedCluster()
    watched.apply(scheduler_pb2.ClusterState(members=members, pools=pools))
    return watched


def names(members: Members) -> list[str]:
    return [known.worker for known in members.all()]


def alive(*workers: str) -> Callable[[scheduler_pb2.Member], bool]:
    return lambda member: member.worker in workers


def test_the_leaders_word_is_taken() -> None:
    members = Members()
    members.update(state(member("b"), member("a")))
    assert names(members) == ["a", "b"]
    members.update(state(member("b")))
    assert names(members) == ["b"]


def test_the_memory_of_a_pool_is_that_of_its_workers_together() -> None:
    members = Members()
    members.update(state(member("a"), member("b", "m", "n")))
    assert [members.kv_tokens(model) for model in ("m", "n", "unknown")] == [2000, 1000, 0]
    members.update(state(member("b", "m", "n")))
    assert members.kv_tokens("m") == 1000


def test_a_new_leader_takes_nobody_away_that_it_never_knew() -> None:
    members = Members()
    members.update(state(member("a"), member("b"), member("c", context=5)))
    members.follow()
    members.update(state(member("c", context=7)))
    assert names(members) == ["a", "b", "c"]
    assert members.resolve("m").max_model_tokens == 7, "of c, what the new leader says"
    members.update(state())
    assert names(members) == ["a", "b"], "c it knew"
    members.disinherit(alive("b"))
    assert (names(members), members.inherited) == (["b"], 1)
    members.update(state(member("b")))
    members.disinherit(alive())
    assert (names(members), members.inherited) == (["b"], 0)


def test_a_worker_known_only_to_a_standby_is_a_member_until_the_leader_had_its_time() -> None:
    members = Members()
    members.update(state(member("a", draining=True), member("b")))
    members.follow()
    standby = state(member("a"), member("c"))
    assert members.inherit(standby)
    assert not members.inherit(standby), "nothing new"
    assert [known.worker for known in members.serving("m")] == ["a", "b", "c"], "a was started anew"
    members.update(state(member("a", draining=True)))
    assert not members.inherit(standby), "of a, what the leader says"
    assert [known.worker for known in members.inherited_serving("m")] == ["b", "c"]
    members.disinherit(alive("b"))
    assert names(members) == ["a", "b"]


class Model:
    """A worker's membership, read off the whole history of what was said."""

    def __init__(self) -> None:
        self.history: list[tuple[str, frozenset[str]]] = []

    def is_member(self, worker: str) -> bool:
        is_member = listed = False  # listed: by the last message of the present leader
        for event, workers in self.history:
            match event:
                case "follow":
                    listed = False
                case "hear":
                    is_member = worker in workers or (is_member and not listed)
                    listed = worker in workers
                case "standby":
                    is_member = is_member or worker in workers
                case "disinherit":
                    is_member = listed or (is_member and worker in workers)
        return is_member


class Histories(RuleBasedStateMachine):
    """Members against the model."""

    def __init__(self) -> None:
        super().__init__()
        self.members, self.model = Members(), Model()

    @rule()
    def follow(self) -> None:
        self.members.follow()
        self.model.history.append(("follow", frozenset()))

    @rule(workers=WORKERS)
    def hear(self, workers: frozenset[str]) -> None:
        self.members.update(state(*map(member, sorted(workers))))
        self.model.history.append(("hear", workers))

    @rule(workers=WORKERS)
    def standby(self, workers: frozenset[str]) -> None:
        self.members.inherit(state(*map(member, sorted(workers))))
        self.model.history.append(("standby", workers))

    @rule(workers=WORKERS)
    def disinherit(self, workers: frozenset[str]) -> None:
        self.members.disinherit(alive(*workers))
        self.model.history.append(("disinherit", workers))

    @invariant()
    def agree(self) -> None:
        self.members.check_invariants()
        assert names(self.members) == [worker for worker in "abc" if self.model.is_member(worker)]


TestHistories = Histories.TestCase


def test_a_report_that_changes_nothing_says_so() -> None:
    members = Members()
    watched = state(member("a"), overloaded="m")
    assert members.update(watched)
    watched.apply(scheduler_pb2.ClusterState(pools=[scheduler_pb2.Pool(model="m", overloaded=True)], is_change=True))
    assert not members.update(watched)
    watched.apply(scheduler_pb2.ClusterState(is_change=True))
    assert members.update(watched), "the overload is over"
    watched.apply(scheduler_pb2.ClusterState(members=[member("a", draining=True)], is_change=True))
    assert members.update(watched)
    assert members.serving("m") == []
    members.follow()
    assert members.update(watched), "told again by a leader that is new"


def test_draining_workers_get_nothing_new() -> None:
    members = Members()
    members.update(state(member("a", draining=True), member("b"), member("c", "other")))
    assert [known.worker for known in members.serving("m")] == ["b"]


def test_overload_is_per_model_and_unknown_without_the_scheduler() -> None:
    members = Members()
    members.update(state(member("a"), overloaded="m"))
    assert (members.overloaded("m"), members.overloaded("other")) == (True, False)
    members.forget_overload()
    assert not members.overloaded("m")


def test_a_model_is_as_large_as_its_smallest_worker() -> None:
    members = Members()
    members.update(state(member("a", context=100), member("b", context=50)))
    assert members.resolve("m").max_model_tokens == 50


def test_a_worker_of_several_models_is_a_member_of_each_ones_pool() -> None:
    members = Members()
    members.update(state(member("a", "m", "n", context=50), member("b", "n"), member("c", "m", draining=True)))
    pools = {model: [known.worker for known in pool] for model, pool in members.pools().items()}
    assert pools == {"m": ["a", "c"], "n": ["a", "b"]}
    assert [known.worker for known in members.serving("m")] == ["a"]
    assert members.resolve("n").max_model_tokens == 50, "as large as at the smaller of its workers"
    members.check_invariants()
    members.update(state(member("b", "n")))
    assert list(members.pools()) == ["n"]
    assert members.resolve("").max_model_tokens == 100


def test_names_of_models() -> None:
    members = Members()
    with pytest.raises(Unavailable, match="no worker"):
        members.resolve("m")
    members.update(state(member("a")))
    assert members.resolve("").name == "m"
    members.update(state(member("a"), member("b", "other")))
    with pytest.raises(InvalidRequest, match="must name one of the models; models served: m, other"):
        members.resolve("")
    with pytest.raises(InvalidRequest, match="model: unknown model 'gpt'; models served: m, other"):
        members.resolve("gpt")
