"""The levels of fairness: the path of accounts from a request's tenant down to its interaction."""

from dataclasses import dataclass
from enum import StrEnum

from local_worker.core.accounts.account import Path
from local_worker.core.request import Request
from serving.names import tenant_of


class FairnessLevel(StrEnum):
    """A level at which siblings share the service of what is above them."""

    TENANT = "tenant"
    USER = "user"
    INTERACTION = "interaction"


@dataclass(frozen=True, slots=True)
class FairnessLevels:
    """The levels of a worker, the highest first.

    A client is named `tenant` or `tenant/user`. Without the level of tenants all users are siblings, each with its
    tenant's weight. Calls of a user without an interaction count as one interaction.
    """

    levels: tuple[FairnessLevel, ...] = (FairnessLevel.USER,)

    @classmethod
    def parse(cls, text: str) -> "FairnessLevels":
        """Return the levels that `text` names, separated by commas.

        Raise ValueError unless they are levels in order, and the first of them is the tenant or the user: callers may
        invent interactions.
        """
        known = [level.value for level in FairnessLevel]
        names = text.split(",")
        if names not in ([each for each in known if each in names], []) or names[0] == FairnessLevel.INTERACTION:
            raise ValueError(
                f"expected some of {', '.join(known)} in this order, the first of them tenant or user; got {text!r}"
            )
        return cls(tuple(FairnessLevel(name) for name in names))

    def __len__(self) -> int:
        return len(self.levels)

    def __str__(self) -> str:
        return ",".join(self.levels)

    @property
    def are_clients_highest(self) -> bool:
        """Whether the accounts of the highest level are those of clients."""
        return self.levels[0] is FairnessLevel.USER

    def path(self, client: str, interaction: str) -> Path:
        """Return the names of the accounts of a request, the highest first."""
        path = self.client_path(client)
        return (*path, interaction) if FairnessLevel.INTERACTION in self.levels else path

    def client_path(self, client: str) -> Path:
        """Return the part of a path that the client alone determines."""
        path: Path = ()
        if FairnessLevel.TENANT in self.levels:
            path = (tenant_of(client),)
        return (*path, client) if FairnessLevel.USER in self.levels else path

    def least_weight(self, request: Request) -> int:
        """Return the least weight of `request` at any level in thousandths: `weight` at the highest, `user_weight`
        below."""
        return request.weight if len(self.levels) == 1 else min(request.weight, request.user_weight)


FLAT = FairnessLevels()
