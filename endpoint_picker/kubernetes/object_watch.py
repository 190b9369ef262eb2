"""A collection of Kubernetes' objects, kept as the API server has it: listed once, then watched."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from endpoint_picker.kubernetes.cluster_api import (
    ApiRefused,
    Bookmark,
    Change,
    ClusterApi,
    ListMeta,
    VersionGone,
)

log = logging.getLogger(__name__)
# Between two calls. It doubles with each that fails; up to half of it is left out by chance, so that pickers that lost
# the API server at the same time do not come back at the same time.
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 10.0
FAILURES = (OSError, ApiRefused, msgspec.DecodeError)


class HasMetadata(Protocol):
    """An object of Kubernetes has metadata."""

    metadata: ListMeta


T = TypeVar("T", bound=HasMetadata)


class ObjectWatch(Generic[T]):
    """The objects of `kind` at `path` that `selector` selects, by name. They stay while the API server is away."""

    def __init__(self, api: ClusterApi, path: str, selector: Mapping[str, str], kind: type[T]) -> None:
        self.objects: dict[str, T] = {}
        self.is_listed = False  # once, even if there are none
        self.is_current = False  # they were listed, and changes since then arrive
        self._api = api
        self._path = path
        self._selector = selector
        self._kind = kind
        self._version = ""  # empty: to be listed
        self._failures = 0

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Keep the objects current, and call `changed` after each list and each change of one."""
        while True:
            try:
                if not self._version:
                    await self._list()
                    await changed()
                async with self._api.watch(self._path, self._selector, self._version) as changes:
                    self.is_current = True
                    async for change in changes:
                        self._failures = 0
                        if self._apply(change):
                            await changed()
                self._failures = 0
            except VersionGone:
                self._version = ""
                self._failures += 1
            except FAILURES as error:
                self._failed(error)
            pause = min(LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * 2.0 ** min(self._failures, 10))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _list(self) -> None:
        found = await self._api.list(self._path, self._selector, self._kind)
        self.objects = {each.metadata.name: each for each in found.items or ()}
        self._version = found.metadata.resource_version
        self.is_listed = True

    def _apply(self, change: Change) -> bool:
        """Apply one change; return whether an object has changed."""
        if change.type == "BOOKMARK":
            self._version = msgspec.json.decode(change.object, type=Bookmark).metadata.resource_version
            return False
        found = msgspec.json.decode(change.object, type=self._kind)
        self._version = found.metadata.resource_version
        if change.type == "DELETED":
            self.objects.pop(found.metadata.name, None)
        else:
            self.objects[found.metadata.name] = found
        return True

    def _failed(self, error: Exception) -> None:
        self.is_current = False
        self._failures += 1
        if self._failures == 1:
            log.warning("Kubernetes' objects are not watched", extra={"path": self._path, "error": repr(error)})
