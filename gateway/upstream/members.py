"""Who is in the cluster, as the schedulers said."""

from collections.abc import Callable, Collection, Mapping

from fairlead.errors import InvalidRequest, Unavailable, listed
from fairlead.v1 import scheduler_pb2
from serving.wire import served_models

CLIPPED = 128  # characters of an unknown model's name that an error repeats


class UnknownModel(InvalidRequest):
    """No worker serves a model of that name."""


class Members:
    """Live workers by name, each model's workers and limits, and which models' pools are overloaded.

    A worker that serves several models is among the workers of each.

    Of every worker that the leader has told of, its word is taken. Those that only an earlier leader told of are
    inherited: they may still have to attach to this one.
    """

    def __init__(self) -> None:
        self._told: dict[str, scheduler_pb2.Member] = {}
        self._inherited: dict[str, scheduler_pb2.Member] = {}
        self._by_worker: dict[str, scheduler_pb2.Member] = {}
        self._pools: dict[str, list[scheduler_pb2.Member]] = {}
        self._limits: dict[str, scheduler_pb2.ModelInfo] = {}
        self._overloaded: dict[str, bool] = {}

    def __len__(self) -> int:
        return len(self._by_worker)

    @property
    def inherited(self) -> int:
        """How many members the leader has not told of yet."""
        return len(self._inherited)

    def follow(self) -> None:
        """A scheduler begins to lead, or comes back: all that are members now are inherited."""
        self._inherited |= self._told
        self._told = {}

    def hear(self, state: scheduler_pb2.ClusterState) -> None:
        """What the leader says."""
        self._told = {member.worker: member for member in state.members}
        self._inherited = {name: member for name, member in self._inherited.items() if name not in self._told}
        self._overloaded = {pool.model: pool.overloaded for pool in state.pools}
        self._pool()

    def disinherit(self, alive: Callable[[scheduler_pb2.Member], bool]) -> None:
        """The workers had time to attach to the leader: of those that have not, keep the ones that are `alive`."""
        self._inherited = {name: member for name, member in self._inherited.items() if alive(member)}
        self._pool()

    def check_invariants(self) -> None:
        """For tests."""
        assert not self._told.keys() & self._inherited.keys()
        assert self._by_worker == self._told | self._inherited
        served = sum(len(served_models(member)) for member in self._by_worker.values())
        assert sum(map(len, self._pools.values())) == served
        assert self._pools.keys() == self._limits.keys()

    def forget_overload(self) -> None:
        """The scheduler is away or silent: overload is unknown, and unknown counts as not overloaded."""
        self._overloaded = {}

    def overloaded(self, model: str) -> bool:
        """Whether the model's pool is overloaded now."""
        return self._overloaded.get(model, False)

    def overloaded_models(self) -> list[str]:
        """Every model whose pool is overloaded."""
        return [model for model, overloaded in self._overloaded.items() if overloaded]

    def all(self) -> Collection[scheduler_pb2.Member]:
        """Every member, by name."""
        return self._by_worker.values()

    def serving(self, model: str) -> list[scheduler_pb2.Member]:
        """The members that serve `model`, draining ones left out, by name."""
        return [member for member in self._pools.get(model, ()) if not member.load.draining]

    def inherited_serving(self, model: str) -> list[scheduler_pb2.Member]:
        """Of those the ones that the leader has not told of yet."""
        return [member for member in self.serving(model) if member.worker in self._inherited]

    def pools(self) -> Mapping[str, list[scheduler_pb2.Member]]:
        """The members of each model, by model name."""
        return self._pools

    def resolve(self, model: str) -> scheduler_pb2.ModelInfo:
        """What every worker of `model` can do; an empty name means the only model.

        Raises UnknownModel for one nobody serves, Unavailable while there is no worker at all.
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
        self._by_worker = dict(sorted((self._inherited | self._told).items()))
        pools: dict[str, list[scheduler_pb2.Member]] = {}
        infos: dict[str, list[scheduler_pb2.ModelInfo]] = {}
        for member in self._by_worker.values():
            for info in served_models(member):
                pools.setdefault(info.name, []).append(member)
                infos.setdefault(info.name, []).append(info)
        self._pools = dict(sorted(pools.items()))
        self._limits = {model: _smallest(of_workers) for model, of_workers in infos.items()}


def _smallest(infos: list[scheduler_pb2.ModelInfo]) -> scheduler_pb2.ModelInfo:
    smallest = scheduler_pb2.ModelInfo()
    smallest.CopyFrom(infos[0])
    smallest.max_prompt_tokens = min(info.max_prompt_tokens for info in infos)
    smallest.max_model_tokens = min(info.max_model_tokens for info in infos)
    smallest.kv_tokens = min(info.kv_tokens for info in infos)
    smallest.longest_token = max(info.longest_token for info in infos)  # the same; 0 of an older worker
    smallest.vocab_size = min(info.vocab_size for info in infos)
    return smallest
