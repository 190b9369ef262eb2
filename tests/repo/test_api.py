"""The names that applications may rely on."""

import subprocess
import sys
from pathlib import Path

import fairlead
from fairlead import errors, prompt

PUBLIC = [
    "CallOptions",
    "Cancelled",
    "ChatOptions",
    "Chunk",
    "Client",
    "ClientLimit",
    "Closed",
    "Completion",
    "DeadlineExceeded",
    "FairleadError",
    "FinishReason",
    "Interaction",
    "Internal",
    "InvalidRequest",
    "Message",
    "Outcome",
    "PermissionDenied",
    "QueueFull",
    "Retries",
    "Retryable",
    "SamplingOptions",
    "Stream",
    "SyncClient",
    "SyncInteraction",
    "SyncStream",
    "ThrottledApp",
    "ThrottledMemory",
    "ThrottledTenant",
    "ThrottledUser",
    "Timings",
    "TokenLogprobs",
    "TooLong",
    "Tool",
    "ToolCall",
    "ToolCallPiece",
    "Unauthenticated",
    "Unavailable",
    "Usage",
]


def test_exported_names() -> None:
    assert fairlead.__all__ == PUBLIC


def test_exported_names_exist() -> None:
    classes = [name for name in PUBLIC if name != "Message"]  # which is an alias
    assert [name for name in classes if getattr(fairlead, name).__name__ != name] == []
    assert fairlead.Message is prompt.Message


def test_every_error_is_exported() -> None:
    assert {error.__name__ for error in errors.ERRORS.values()} <= set(PUBLIC)


def test_the_sdks_page_tells_every_error() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text()
    exported = [getattr(fairlead, name) for name in PUBLIC if name != "Message"]
    names = [cls.__name__ for cls in exported if issubclass(cls, fairlead.FairleadError)]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_import_is_light() -> None:
    """Services import `fairlead` too, and the SDK's own parts only when named."""
    code = "import sys, fairlead; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
