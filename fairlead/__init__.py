"""Fairlead's client SDK.

    async with fairlead.Client() as client:
        completion = await client.chat([{"role": "user", "content": "Hello"}])

Names are loaded on first use, so that `import fairlead` does not load modules that a service does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.client import Client as Client
    from fairlead.completion import Chunk as Chunk
    from fairlead.completion import Completion as Completion
    from fairlead.completion import Timings as Timings
    from fairlead.completion import TokenLogprobs as TokenLogprobs
    from fairlead.completion import Usage as Usage
    from fairlead.errors import Cancelled as Cancelled
    from fairlead.errors import ClientLimit as ClientLimit
    from fairlead.errors import Closed as Closed
    from fairlead.errors import DeadlineExceeded as DeadlineExceeded
    from fairlead.errors import FairleadError as FairleadError
    from fairlead.errors import Internal as Internal
    from fairlead.errors import InvalidRequest as InvalidRequest
    from fairlead.errors import PermissionDenied as PermissionDenied
    from fairlead.errors import QueueFull as QueueFull
    from fairlead.errors import Retryable as Retryable
    from fairlead.errors import ThrottledApp as ThrottledApp
    from fairlead.errors import ThrottledMemory as ThrottledMemory
    from fairlead.errors import ThrottledTenant as ThrottledTenant
    from fairlead.errors import ThrottledUser as ThrottledUser
    from fairlead.errors import TooLong as TooLong
    from fairlead.errors import Unauthenticated as Unauthenticated
    from fairlead.errors import Unavailable as Unavailable
    from fairlead.interaction import Interaction as Interaction
    from fairlead.options import CallOptions as CallOptions
    from fairlead.options import ChatOptions as ChatOptions
    from fairlead.options import SamplingOptions as SamplingOptions
    from fairlead.outcomes import FinishReason as FinishReason
    from fairlead.outcomes import Outcome as Outcome
    from fairlead.prompt import Message as Message
    from fairlead.retries import Retries as Retries
    from fairlead.stream import Stream as Stream
    from fairlead.sync_client import SyncClient as SyncClient
    from fairlead.sync_interaction import SyncInteraction as SyncInteraction
    from fairlead.sync_stream import SyncStream as SyncStream
    from fairlead.tools import Tool as Tool
    from fairlead.tools import ToolCall as ToolCall
    from fairlead.tools import ToolCallPiece as ToolCallPiece

_EXPORTED = {
    "client": ("Client",),
    "completion": ("Chunk", "Completion", "Timings", "TokenLogprobs", "Usage"),
    "errors": (
        "Cancelled",
        "ClientLimit",
        "Closed",
        "DeadlineExceeded",
        "FairleadError",
        "Internal",
        "InvalidRequest",
        "PermissionDenied",
        "QueueFull",
        "Retryable",
        "ThrottledApp",
        "ThrottledMemory",
        "ThrottledTenant",
        "ThrottledUser",
        "TooLong",
        "Unauthenticated",
        "Unavailable",
    ),
    "interaction": ("Interaction",),
    "options": ("CallOptions", "ChatOptions", "SamplingOptions"),
    "outcomes": ("FinishReason", "Outcome"),
    "prompt": ("Message",),
    "retries": ("Retries",),
    "stream": ("Stream",),
    "sync_client": ("SyncClient",),
    "sync_interaction": ("SyncInteraction",),
    "sync_stream": ("SyncStream",),
    "tools": ("Tool", "ToolCall", "ToolCallPiece"),
}
_HOMES = {name: module for module, names in _EXPORTED.items() for name in names}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
    return getattr(import_module(f"fairlead.{_HOMES[name]}"), name)
