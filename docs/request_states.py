"""`python docs/request_states.py`: draws the states of a worker's request in docs/architecture.md from the table."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from local_worker.core.request_states import HOLDERS, TRANSITIONS, RequestState

PAGE = Path(__file__).parent / "architecture.md"
DRAWING = re.compile(r"(?<=<!-- drawn by docs/request_states.py -->\n).*?(?=<!-- end of the drawing -->)", re.DOTALL)


def drawing() -> str:
    """The states with the collections that hold their requests, and the transitions as a Mermaid state diagram."""
    rows = [f"| {state} | {HOLDERS[state]} | {_exits(state)} |" for state in RequestState]
    diagram = ["```mermaid", "stateDiagram-v2", *_arrows(), "```"]
    return "\n".join(
        ["| state | the collection that holds it | left when it is |", "|---|---|---|", *rows, "", *diagram, ""]
    )


def _exits(state: RequestState) -> str:
    return ", ".join(event for event, target in TRANSITIONS[state].items() if target is not state) or "-"


def _arrows() -> Iterator[str]:
    yield f"    [*] --> {RequestState.COMPILING}"
    yield f"    [*] --> {RequestState.WAITING}"
    for state, events in TRANSITIONS.items():
        for target in RequestState:
            labels = [event for event, reached in events.items() if reached is target]
            if labels:
                yield f"    {state} --> {target}: {', '.join(labels)}"
    yield f"    {RequestState.ENDED} --> [*]"


def redrawn(page: str) -> str:
    """`page` with the current drawing; raises ValueError when it has no place for one."""
    page, count = DRAWING.subn(lambda _: drawing(), page)
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} places for the drawing, not 1")
    return page


def main() -> int:
    """Write the page; returns the exit status."""
    PAGE.write_text(redrawn(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
