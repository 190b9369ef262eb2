"""`python docs/call_states.py`: draws the states of a call in docs/architecture.md from the table."""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.core.call_events import Event
from gateway.core.call_states import TRANSITIONS, CallState

PAGE = Path(__file__).parent / "architecture.md"
DRAWING = re.compile(r"(?<=<!-- drawn by docs/call_states.py -->\n).*?(?=<!-- end of the drawing -->)", re.DOTALL)


def drawing(transitions: Mapping[CallState, Mapping[type[Event], tuple[CallState, ...]]]) -> str:
    """The table as a Mermaid state diagram; what an ended call ignores is left out."""
    return "\n".join(["```mermaid", "stateDiagram-v2", *_lines(transitions), "```", ""])


def _lines(transitions: Mapping[CallState, Mapping[type[Event], tuple[CallState, ...]]]) -> Iterator[str]:
    yield f"    [*] --> {CallState.NEW}"
    for state, events in transitions.items():
        if state is CallState.ENDED:
            continue
        for target in CallState:
            labels = [event.__name__.lower() for event, targets in events.items() if target in targets]
            if labels:
                yield f"    {state} --> {target}: {', '.join(labels)}"
    yield f"    {CallState.ENDED} --> [*]"


def redrawn(page: str) -> str:
    """`page` with the current drawing; raises ValueError when it has no place for one."""
    page, count = DRAWING.subn(lambda _: drawing(TRANSITIONS), page)
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} places for the drawing, not 1")
    return page


def main() -> int:
    """Write the page; returns the exit status."""
    PAGE.write_text(redrawn(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
