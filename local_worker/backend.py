"""The port between a worker's services and the backend that computes the requests."""

from typing import Protocol

from local_worker.core.request import Request
from local_worker.prompt_encoder import PromptEncoder
from serving.constraint import Constraint


class Backend(Protocol):
    """The component that schedules requests and computes them.

    It delivers its results as WorkerUpdates, in order. Each submitted request ends with exactly one
    RequestEnded. Commands return at once.
    """

    @property
    def prompts(self) -> PromptEncoder:
        """The encoder of the worker's models, with which it also makes requests."""

    def is_known(self, constraint: Constraint) -> bool:
        """Return whether `check` has nothing to find out for a constraint."""

    async def check(self, constraint: Constraint) -> None:
        """Raise InvalidRequest with the name of the field for a constraint that cannot be obeyed here.

        If it is cancelled, its work ends.
        """

    def start(self) -> None:
        """Start to compute and to deliver events."""

    def stop(self) -> None:
        """Finish the steps in flight and return; no events are delivered afterwards."""

    def submit(self, request: Request) -> None:
        """Accept a request. Raises InvalidRequest or Unavailable, and changes nothing then."""

    def abort(self, request: Request) -> None:
        """End a submitted request as CANCELLED within one step; do nothing if it has ended."""

    def flush_cache(self) -> None:
        """Evict the blocks of the prefix cache that no request uses."""

    @property
    def stepping_since(self) -> float | None:
        """The start of the step in flight in seconds of the monotonic clock; None between steps."""
