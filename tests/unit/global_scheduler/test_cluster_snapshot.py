"""What gateways are told about the cluster: whoever applies all changes has the whole."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from fairlead.v1 import scheduler_pb2
from global_scheduler.cluster_snapshot import ClusterSnapshot
from serving.watched_cluster import WatchedCluster

WORKERS = "abc"
SNAPSHOTS: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        members=st.dictionaries(st.sampled_from(WORKERS), st.integers(0, 2)),
        overloaded=st.none() | st.booleans(),
        epoch=st.integers(0, 2),
    ),
    min_size=1,
    max_size=8,
)
# Two processes of each worker, and one that drains: a message that is not changed is shared by all snapshots.
MEMBERS = {
    (worker, kind): scheduler_pb2.Member(
        worker=worker, instance=str(min(kind, 1)), load=scheduler_pb2.Load(draining=kind == 2)
    )
    for worker in WORKERS
    for kind in range(3)
}


def snapshot(members: dict[str, int], overloaded: bool | None, epoch: int) -> ClusterSnapshot:
    pools = {} if overloaded is None else {"m": overloaded}
    return ClusterSnapshot({worker: MEMBERS[worker, kind] for worker, kind in members.items()}, pools, epoch)


@given(SNAPSHOTS)
def test_changes_lead_from_each_view_to_the_next(drawn: list[dict[str, Any]]) -> None:
    first, *later = [snapshot(**each) for each in drawn]
    watched = WatchedCluster()
    watched.apply(first.whole())
    earlier = first
    for each in later:
        before, changes = watched.members, each.changes(earlier)
        watched.apply(changes)
        earlier = each
        unchanged = {member.worker for member in changes.members} | set(changes.left)
        assert all(watched.members.get(worker) is before.get(worker) for worker in before if worker not in unchanged)
        assert (watched.members is before) == (not unchanged)
        assert (watched.members, watched.overloaded, watched.epoch) == (each.members, each.pools, each.epoch)
        afresh = WatchedCluster()
        afresh.apply(each.whole())
        assert afresh.members == watched.members


def test_only_what_changed_is_told() -> None:
    before, after = snapshot({"a": 0, "b": 0, "c": 0}, False, 1), snapshot({"a": 0, "b": 2}, False, 1)
    changes = after.changes(before)
    assert (list(changes.members), list(changes.left), changes.is_change) == ([MEMBERS["b", 2]], ["c"], True)
    nothing = after.changes(after)
    assert (list(nothing.members), list(nothing.left), nothing.epoch) == ([], [], 1)
    assert not before.whole().is_change
