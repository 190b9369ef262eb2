"""The cluster as one scheduler reports it on one Watch stream."""

from collections.abc import Mapping

from fairlead.v1 import scheduler_pb2


class WatchedCluster:
    """The latest report: members by name, the overload of each model's pool, and the scheduler's epoch.

    `members` is replaced by each message that changes it, and never changed itself.
    """

    def __init__(self) -> None:
        self.members: Mapping[str, scheduler_pb2.Member] = {}
        self.overloaded: Mapping[str, bool] = {}
        self.epoch = 0

    def apply(self, state: scheduler_pb2.ClusterState) -> None:
        """Apply the stream's next message, which holds all members or those that changed since the last message."""
        self.epoch = state.epoch
        self.overloaded = {pool.model: pool.overloaded for pool in state.pools}
        told = {member.worker: member for member in state.members}
        if not state.is_change:
            if told != self.members:
                self.members = told
        elif told or state.left:
            left = frozenset(state.left)
            kept = {worker: member for worker, member in self.members.items() if worker not in left}
            self.members = kept | told
