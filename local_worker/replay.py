"""The fairness of a worker's recorded history, computed again: `python -m local_worker.replay FILE`.

For every pair of clients, not only for those that were watched: by how much their service over weight moved apart while
both had requests waiting, beside the bound of the policy that ran.
"""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_worker.core.charging import Charging
from local_worker.core.request import Request
from serving.cost import MICRO, charge, parse_cost
from serving.sampling_params import SamplingParams

SHOWN = 10
DESCRIBED = ("arrival", "client", "weight", "prompt_tokens", "system_tokens", "reserved")


@dataclass(slots=True)
class Gap:
    """Of one pair, micro-units; `event` is where it was reached."""

    worst: int = 0
    event: int = 0
    least: int = 0
    greatest: int = 0


@dataclass(slots=True)
class Replay:
    """Reads one segment; `gaps` by pair, clients in order of their names."""

    charging: Charging
    weighted: dict[str, int]
    requests: dict[int, Request] = field(default_factory=dict)
    waiting: dict[str, dict[int, None]] = field(default_factory=dict)
    gaps: dict[tuple[str, str], Gap] = field(default_factory=dict)

    def read(self, segment: dict[str, Any]) -> None:
        """From how things stood through every event."""
        for described in segment["requests"]:
            self._enter(described)
        for number, (kind, arrival, amount, *described) in enumerate(segment["events"]):
            if kind == "arrived":
                self._enter(described[0])
            request = self.requests[arrival]
            self._event(kind, request, amount)
            self._look(request.client, number)

    def _enter(self, described: dict[str, Any]) -> None:
        request = Request(
            id="",
            tokens=[0] * (described["prompt_tokens"] + described["output_tokens"]),
            digests=[],
            chain_seed=0,
            sampling=SamplingParams(),
            **{name: described[name] for name in DESCRIBED},
        )
        self.requests[request.arrival] = request
        self.weighted.setdefault(request.client, 0)
        if described["waiting"]:
            self._wait(request)

    def _wait(self, request: Request) -> None:
        mine = self.waiting.setdefault(request.client, {})
        if not mine:
            self._start(request.client)
        mine[request.arrival] = None

    def _start(self, client: str) -> None:
        """An interval in which `client` is backlogged begins."""
        for other, arrivals in self.waiting.items():
            if arrivals and other != client:
                pair = min(client, other), max(client, other)
                lead = self.weighted[pair[0]] - self.weighted[pair[1]]
                gap = self.gaps.setdefault(pair, Gap())
                gap.least = gap.greatest = lead

    def _event(self, kind: str, request: Request, amount: int) -> None:
        """`amount` of tokens, or of micro-units where they were forfeited."""
        mine = self.waiting.setdefault(request.client, {})
        match kind:
            case "admitted":
                mine.pop(request.arrival, None)
                self._serve(request, self.charging.extend(request, amount))
            case "generated":
                request.tokens += [0] * amount
                self._serve(request, self.charging.due(request, amount))
            case "reserved":
                start = max(request.reserved, request.output_tokens)
                request.reserved = amount
                self._serve(request, self.charging.output(request, start, amount))
            case "forfeited":
                self._serve(request, amount)
            case "preempted":
                self._wait(request)
            case "left":
                mine.pop(request.arrival, None)
                del self.requests[request.arrival]

    def _serve(self, request: Request, micro: int) -> None:
        self.weighted[request.client] += charge(micro, request.weight)

    def _look(self, client: str, event: int) -> None:
        if not self.waiting[client]:
            return
        for other, arrivals in self.waiting.items():
            if arrivals and other != client:
                pair = min(client, other), max(client, other)
                lead, gap = self.weighted[pair[0]] - self.weighted[pair[1]], self.gaps[pair]
                gap.least, gap.greatest = min(gap.least, lead), max(gap.greatest, lead)
                if gap.greatest - gap.least > gap.worst:
                    gap.worst, gap.event = gap.greatest - gap.least, event


def replay(record: dict[str, Any]) -> list[Replay]:
    """Each segment of a recorded history."""
    replays = []
    for segment in record["segments"]:
        replays.append(Replay(Charging(parse_cost(record["cost"])), dict(segment["weighted"])))
        replays[-1].read(segment)
    return replays


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m local_worker.replay", description=__doc__)
    parser.add_argument("file", type=Path, help="written by a worker whose gap exceeded its bound")
    record = json.loads(parser.parse_args().file.read_text())
    bound = record["bound_micro"]
    stated = "no bound" if bound is None else f"bound {bound / MICRO:,.0f}"
    print(f"policy {record['policy']}, cost {record['cost']}, {record['admission']} admission, {stated}")
    for number, each in enumerate(replay(record), start=1):
        print(f"segment {number}: {len(record['segments'][number - 1]['events']):,} events")
        worst = sorted(each.gaps.items(), key=lambda entry: (-entry[1].worst, entry[0]))
        for (first, second), gap in worst[:SHOWN]:
            mark = "  ABOVE THE BOUND" if bound is not None and gap.worst > bound else ""
            print(f"  {gap.worst / MICRO:>14,.0f}  {first} / {second}, at event {gap.event:,}{mark}")


if __name__ == "__main__":
    main()
