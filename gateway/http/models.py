"""GET /v1/models and /v1/models/{id}, as OpenAI's API has them and as Anthropic's."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from fairlead.errors import Unavailable
from gateway.upstream.members import Members


class Models:
    """The models that are served now."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._created = int(time.time())  # of all of them: a model has no time of its own

    def all(self) -> bytes:
        """Return the list as JSON; raises Unavailable while nothing is served, which an empty list would hide."""
        names = [*self._members.pools()]
        if not names:
            raise Unavailable("no worker is attached yet")
        return msgspec.json.encode({**self._page(names), "data": [self._model(name) for name in names]})

    def one(self, name: str) -> bytes:
        """Return one model as JSON; raises UnknownModel, and Unavailable while nothing is served."""
        return msgspec.json.encode(self._model(name))

    def _page(self, names: Sequence[str]) -> dict[str, Any]:
        return {"object": "list"}

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "fairlead",
            "root": name,
            "parent": None,
            "max_model_len": self._longest(name),
        }

    def _longest(self, name: str) -> int:
        return self._members.resolve(name).max_model_tokens


class AnthropicModels(Models):
    """The same models, with the fields that clients of Anthropic's API read."""

    def _page(self, names: Sequence[str]) -> dict[str, Any]:
        return {"has_more": False, "first_id": names[0], "last_id": names[-1]}

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "type": "model",
            "display_name": name,
            "lifecycle": "active",
            "created_at": f"{datetime.fromtimestamp(self._created, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "max_input_tokens": self._longest(name),
            "max_tokens": self._longest(name),
        }
