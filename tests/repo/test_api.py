"""The names that applications may rely on."""

import subprocess
import sys

import fairlead

PUBLIC = [
    "Chunk",
    "Client",
    "Completion",
    "FairleadError",
    "FinishReason",
    "Interaction",
    "Outcome",
    "Retries",
    "SyncClient",
]


def test_exported_names() -> None:
    assert fairlead.__all__ == PUBLIC


def test_exported_names_exist() -> None:
    assert [name for name in PUBLIC if getattr(fairlead, name).__name__ != name] == []


def test_import_is_light() -> None:
    """Services import `fairlead` too, and the SDK's own parts only when named."""
    code = "import sys, fairlead; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
