"""GET /v1/models and /v1/models/{id}."""

import time
from collections.abc import Collection
from typing import Any

import msgspec

from fairlead.errors import Unavailable
from gateway.upstream.members import Members, UnknownModel


class Models:
    """The models that are served now."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._created = int(time.time())  # of all of them: a model has no time of its own

    def all(self) -> bytes:
        """Return the list as JSON; raises Unavailable while nothing is served, which an empty list would hide."""
        return msgspec.json.encode({"object": "list", "data": [self._model(name) for name in self._names()]})

    def one(self, name: str) -> bytes:
        """Return one model as JSON; raises UnknownModel, and Unavailable while nothing is served."""
        if name not in self._names():
            raise UnknownModel(f"unknown model {name[:128]!r}", "model")
        return msgspec.json.encode(self._model(name))

    def _names(self) -> Collection[str]:
        if not self._members.pools():
            raise Unavailable("no worker is attached yet")
        return self._members.pools()

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "fairlead",
            "root": name,
            "parent": None,
            "max_model_len": self._members.resolve(name).max_model_tokens,
        }
