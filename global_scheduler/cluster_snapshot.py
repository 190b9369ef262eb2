"""The cluster as gateways see it, and what changed between two moments."""

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.v1 import scheduler_pb2


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Members by name, the overload of each model's pool, and the leader's epoch; 0 of a standby.

    Snapshots share the messages of members that did not change, so that a comparison of two is one of identities.
    """

    members: Mapping[str, scheduler_pb2.Member]
    pools: Mapping[str, bool]
    epoch: int

    @property
    def is_overloaded(self) -> bool:
        return any(self.pools.values())

    def whole(self) -> scheduler_pb2.ClusterState:
        """Return the message with all members in order of their names."""
        members = [self.members[worker] for worker in sorted(self.members)]
        return scheduler_pb2.ClusterState(members=members, pools=self._pools(), epoch=self.epoch)

    def changes(self, earlier: "ClusterSnapshot") -> scheduler_pb2.ClusterState:
        """Return the message with the members that came, changed or left since `earlier`."""
        changed = [member for worker, member in self.members.items() if earlier.members.get(worker) is not member]
        left = sorted(earlier.members.keys() - self.members.keys())
        return scheduler_pb2.ClusterState(
            members=changed, pools=self._pools(), epoch=self.epoch, is_change=True, left=left
        )

    def _pools(self) -> list[scheduler_pb2.Pool]:
        return [scheduler_pb2.Pool(model=model, overloaded=overloaded) for model, overloaded in self.pools.items()]
