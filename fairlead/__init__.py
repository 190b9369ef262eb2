"""Fairlead's client SDK, and the library that its services share.

    async with fairlead.Client() as client:
        completion = await client.chat([{"role": "user", "content": "Hello"}])

Names are loaded on first use, so that `import fairlead` costs a service nothing that it does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.client import Client as Client
    from fairlead.completion import Chunk as Chunk
    from fairlead.completion import Completion as Completion
    from fairlead.errors import FairleadError as FairleadError
    from fairlead.interaction import Interaction as Interaction
    from fairlead.outcomes import FinishReason as FinishReason
    from fairlead.outcomes import Outcome as Outcome
    from fairlead.retries import Retries as Retries
    from fairlead.sync_client import SyncClient as SyncClient

_HOMES = {
    "Chunk": "completion",
    "Client": "client",
    "Completion": "completion",
    "FairleadError": "errors",
    "FinishReason": "outcomes",
    "Interaction": "interaction",
    "Outcome": "outcomes",
    "Retries": "retries",
    "SyncClient": "sync_client",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
    return getattr(import_module(f"fairlead.{_HOMES[name]}"), name)
