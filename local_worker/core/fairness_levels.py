"""The levels of fairness: the path of accounts from a request's tenant down to its interaction."""

from dataclasses import dataclass
from enum import StrEnum

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

    def path(self, request: Request) -> tuple[str, ...]:
        """Return the names of the accounts of `request`, the highest first."""
        path = self.client_path(request.client)
        return (*path, request.interaction) if FairnessLevel.INTERACTION in self.levels else path

    def client_path(self, client: str) -> tuple[str, ...]:
        """Return the part of a path that the client alone determines."""
        path: tuple[str, ...] = ()
        if FairnessLevel.TENANT in self.levels:
            path = (tenant_of(client),)
        return (*path, client) if FairnessLevel.USER in self.levels else path

    def least_weight(self, request: Request) -> int:
        """Return the least weight of `request` at any level in thousandths: `weight` at the highest, `user_weight`
        below."""
        return request.weight if len(self.levels) == 1 else min(request.weight, request.user_weight)


FLAT = FairnessLevels()
