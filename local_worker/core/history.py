"""What happened lately, as it counts for fairness: enough to compute everybody's service again, away from the worker.

Two segments, of which the older is dropped when the newer is full. A segment begins with how things stood, so that it
can be read without what went before; and with an arrival, since other events come in the middle of a step. What can
happen without arrivals is bounded by the output of those that are here.
"""

from collections.abc import Iterable
from typing import Any

from local_worker.core.request import Request

SEGMENT = 50_000  # events
Event = tuple[str, int, int]  # kind, the request's arrival, tokens or micro-units


class History:
    """Told by the ledger. O(1) per event; a new segment costs as much as there are clients and requests, once."""

    def __init__(self, segment: int = SEGMENT) -> None:
        self._size = segment
        self._live: dict[int, Request] = {}  # waiting or running, by arrival
        self._waiting: dict[int, None] = {}
        self._weighted: dict[str, int] = {}  # of clients that have requests here
        self._segments = [self._begin()]

    def _begin(self) -> dict[str, Any]:
        requests = [_described(request, arrival in self._waiting) for arrival, request in self._live.items()]
        return {"weighted": dict(self._weighted), "requests": requests, "events": []}

    def arrived(self, request: Request, weighted: int) -> None:
        """`request` joined the queue; its client's service over weight stands at `weighted`, micro-units."""
        if len(self._segments[-1]["events"]) >= max(self._size, 4 * len(self._live)):
            self._segments = [self._segments[-1], self._begin()]
        self._live[request.arrival] = request
        self._waiting[request.arrival] = None
        self._weighted[request.client] = weighted
        self._add(("arrived", request.arrival, request.prompt_tokens), _described(request, waiting=True))

    def left(self, request: Request) -> None:
        """`request` is neither waiting nor running any more."""
        self._live.pop(request.arrival, None)
        self._waiting.pop(request.arrival, None)
        self._add(("left", request.arrival, 0))

    def admitted(self, request: Request, charged: int) -> None:
        """`request` entered the batch; so many prompt tokens were charged."""
        self._waiting.pop(request.arrival, None)
        self._add(("admitted", request.arrival, charged))

    def forfeited(self, request: Request, weighted: int) -> None:
        """What `request` had prepaid is gone, and its client's service over weight stands at `weighted`."""
        self._weighted[request.client] = weighted
        self._add(("forfeited", request.arrival, request.prepaid))

    def reserved(self, request: Request, weighted: int) -> None:
        """`request` has room beyond its client's share, whose service over weight stands at `weighted`."""
        self._weighted[request.client] = weighted
        self._add(("reserved", request.arrival, request.reserved))

    def preempted(self, request: Request) -> None:
        """`request` is waiting again."""
        self._waiting[request.arrival] = None
        self._add(("preempted", request.arrival, 0))

    def generated(self, request: Request, tokens: int) -> None:
        """`request` was given output tokens."""
        self._segments[-1]["events"].append(["generated", request.arrival, tokens])

    def served(self, client: str, weighted: int) -> None:
        """The client's service over weight has grown to `weighted`."""
        self._weighted[client] = weighted

    def idle(self, client: str) -> None:
        """The client has no requests here any more."""
        self._weighted.pop(client, None)

    def _add(self, event: Event, *described: Any) -> None:
        self._segments[-1]["events"].append([*event, *described])

    def segments(self) -> Iterable[dict[str, Any]]:
        """The one or two segments, older first: plain values."""
        return list(self._segments)


def _described(request: Request, waiting: bool) -> dict[str, Any]:
    return {
        "arrival": request.arrival,
        "client": request.client,
        "weight": request.weight,
        "prompt_tokens": request.prompt_tokens,
        "system_tokens": request.system_tokens,
        "output_tokens": request.output_tokens,
        "reserved": request.reserved,
        "waiting": waiting,
    }
