"""`python docs/states.py`: draws the states of a call and of a worker's request in docs/architecture.md from their
tables."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from gateway.core.call_events import Event
from gateway.core.call_states import TRANSITIONS as CALL_TRANSITIONS
from gateway.core.call_states import CallState
from local_worker.core.machine import HOLDERS, TRANSITIONS, RequestEvent, RequestState

PAGE = Path(__file__).parent / "architecture.md"


def call_drawing(transitions: Mapping[CallState, Mapping[type[Event], tuple[CallState, ...]]]) -> str:
    """The table as a Mermaid state diagram; what an ended call ignores is left out."""
    left = {
        state: [(event.__name__.lower(), target) for event, targets in events.items() for target in targets]
        for state, events in transitions.items()
        if state is not CallState.ENDED
    }
    return _diagram(CallState, [CallState.NEW], left, CallState.ENDED)


def request_drawing() -> str:
    """The states with the collections that hold their requests, and the transitions as a Mermaid state diagram."""
    rows = [f"| {state} | {HOLDERS[state]} | {_exits(state)} |" for state in RequestState]
    table = ["| state | the collection that holds it | left when it is |", "|---|---|---|", *rows, "", ""]
    left = {state: list[tuple[str, StrEnum]](events.items()) for state, events in TRANSITIONS.items()}
    begins = [RequestState.COMPILING, RequestState.WAITING]
    return "\n".join(table) + _diagram(RequestState, begins, left, RequestState.ENDED)


def _exits(state: RequestState) -> str:
    exits: list[RequestEvent] = [event for event, target in TRANSITIONS[state].items() if target is not state]
    return ", ".join(exits) or "-"


def _diagram(
    states: Iterable[StrEnum],
    begins: Iterable[StrEnum],
    left: Mapping[StrEnum, list[tuple[str, StrEnum]]],
    end: StrEnum,
) -> str:
    begun = [f"    [*] --> {state}" for state in begins]
    return "\n".join(["```mermaid", "stateDiagram-v2", *begun, *_arrows(states, left), f"    {end} --> [*]", "```", ""])


def _arrows(states: Iterable[StrEnum], left: Mapping[StrEnum, list[tuple[str, StrEnum]]]) -> Iterator[str]:
    for state, events in left.items():
        for target in states:
            labels = [event for event, reached in events if reached is target]
            if labels:
                yield f"    {state} --> {target}: {', '.join(labels)}"


def redrawn(page: str) -> str:
    """`page` with the current drawings; raises ValueError when it has no place for one."""
    return _replaced(_replaced(page, "calls", call_drawing(CALL_TRANSITIONS)), "requests", request_drawing())


def _replaced(page: str, name: str, drawing: str) -> str:
    place = f"(?<=<!-- {name} drawn by docs/states.py -->\n).*?(?=<!-- end of the drawing -->)"
    page, count = re.subn(place, lambda _: drawing, page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} places for the drawing of {name}, not 1")
    return page


def main() -> int:
    """Write the page; returns the exit status."""
    PAGE.write_text(redrawn(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
