"""The members of the cluster, as the schedulers reported them."""

from collections.abc import Callable, Collection, Mapping

from fairlead.errors import InvalidRequest, Unavailable, listed
from fairlead.v1 import scheduler_pb2
from serving.watched_cluster import WatchedCluster

CLIPPED = 128  # characters of an unknown model's name that an error repeats


class UnknownModel(InvalidRequest):
    """No worker serves a model of this name."""


class Members:
    """Live workers by name, the workers and limits of each model, and the models whose pools are overloaded.

    A worker that serves several models is among the workers of each. The leader's report replaces all earlier data
    about the workers in it. Workers that only an earlier leader or a standby reported are inherited: they may not have
    attached to the present leader yet.
    """

    def __init__(self) -> None:
        self._told: Mapping[str, scheduler_pb2.Member] = {}
        self._inherited: dict[str, scheduler_pb2.Member] = {}
        self._by_worker: dict[str, scheduler_pb2.Member] = {}
        self._pools: dict[str, list[scheduler_pb2.Member]] = {}
        self._serving: dict[str, list[scheduler_pb2.Member]] = {}  # the members of the pools that do not drain
        self._limits: dict[str, scheduler_pb2.ModelInfo] = {}
        self._kv_tokens: dict[str, int] = {}
        self._overloaded: Mapping[str, bool] = {}

    def __len__(self) -> int:
        return len(self._by_worker)

    @property
    def inherited(self) -> int:
        """The number of members that the leader has not reported yet."""
        return len(self._inherited)

    def follow(self) -> None:
        """Mark all members as inherited, because a scheduler takes the lead, reconnects or is lost."""
        self._inherited = {**self._inherited, **self._told}
        self._told = {}

    def update(self, report: WatchedCluster) -> bool:
        """Apply a report of the leader; return whether it changes anything."""
        has_changed = report.members is not self._told
        if has_changed:
            self._told = report.members
            self._inherited = {name: member for name, member in self._inherited.items() if name not in self._told}
            self._pool()
        if self._overloaded != report.overloaded:
            self._overloaded, has_changed = report.overloaded, True
        return has_changed

    def inherit(self, standby: WatchedCluster) -> bool:
        """Inherit the workers that a standby reports and the leader does not; return whether this changes anything.

        One that was started anew replaces what is known under its name.
        """
        known = {name: member for name, member in standby.members.items() if name not in self._told}
        if all(self._inherited.get(name) is member for name, member in known.items()):
            return False
        self._inherited |= known
        self._pool()
        return True

    def disinherit(self, alive: Callable[[scheduler_pb2.Member], bool]) -> None:
        """Remove the inherited members that are not `alive`: they had enough time to attach to the leader."""
        self._inherited = {name: member for name, member in self._inherited.items() if alive(member)}
        self._pool()

    def check_invariants(self) -> None:
        """Raise AssertionError if the tables of members and pools contradict each other."""
        assert not self._told.keys() & self._inherited.keys()
        assert self._by_worker == {**self._told, **self._inherited}
        served = sum(len(member.models) for member in self._by_worker.values())
        assert sum(map(len, self._pools.values())) == served
        assert self._pools.keys() == self._limits.keys()

    def forget_overload(self) -> None:
        """Treat all pools as not overloaded, because the scheduler is unreachable or silent and overload is unknown."""
        self._overloaded = {}

    def overloaded(self, model: str) -> bool:
        """Return whether the model's pool is overloaded now."""
        return self._overloaded.get(model, False)

    def overloaded_models(self) -> list[str]:
        """Return every model whose pool is overloaded."""
        return [model for model, overloaded in self._overloaded.items() if overloaded]

    def kv_tokens(self, model: str) -> int:
        """Return the tokens of KV cache that the workers of the model have together."""
        return self._kv_tokens.get(model, 0)

    def all(self) -> Collection[scheduler_pb2.Member]:
        """Return all members in order of their names."""
        return self._by_worker.values()

    def serving(self, model: str) -> list[scheduler_pb2.Member]:
        """Return the members that serve `model`, without draining ones, in order of their names."""
        return self._serving.get(model, [])

    def inherited_serving(self, model: str) -> list[scheduler_pb2.Member]:
        """Return the members of `serving` that the leader has not reported yet."""
        return [member for member in self.serving(model) if member.worker in self._inherited]

    def pools(self) -> Mapping[str, list[scheduler_pb2.Member]]:
        """Return the members of each model, in order of the models' names."""
        return self._pools

    def resolve(self, model: str) -> scheduler_pb2.ModelInfo:
        """Return the limits that hold at every worker of `model`; an empty name means the only model.

        Raise UnknownModel if no worker serves the model, Unavailable if there is no worker at all.
        """
        if not self._limits:
            raise Unavailable("no worker is attached yet")
        if not model and len(self._limits) == 1:
            return next(iter(self._limits.values()))
        if model not in self._limits:
            problem = f"unknown model {model[:CLIPPED]!r}" if model else "must name one of the models"
            raise UnknownModel(f"{problem}; models served: {listed(list(self._pools))}", "model")
        return self._limits[model]

    def _pool(self) -> None:
        self._by_worker = dict(sorted({**self._inherited, **self._told}.items()))
        pools: dict[str, list[scheduler_pb2.Member]] = {}
        infos: dict[str, list[scheduler_pb2.ModelInfo]] = {}
        for member in self._by_worker.values():
            for info in member.models:
                pools.setdefault(info.name, []).append(member)
                infos.setdefault(info.name, []).append(info)
        self._pools = dict(sorted(pools.items()))
        self._serving = {model: [m for m in pool if not m.load.draining] for model, pool in pools.items()}
        self._limits = {model: _smallest(of_workers) for model, of_workers in infos.items()}
        self._kv_tokens = {model: sum(info.kv_tokens for info in of_workers) for model, of_workers in infos.items()}


def _smallest(infos: list[scheduler_pb2.ModelInfo]) -> scheduler_pb2.ModelInfo:
    smallest = scheduler_pb2.ModelInfo()
    smallest.CopyFrom(infos[0])
    smallest.max_prompt_tokens = min(info.max_prompt_tokens for info in infos)
    smallest.max_model_tokens = min(info.max_model_tokens for info in infos)
    smallest.kv_tokens = min(info.kv_tokens for info in infos)
    smallest.longest_token = max(info.longest_token for info in infos)
    smallest.vocab_size = min(info.vocab_size for info in infos)
    return smallest
