"""docs/architecture.md shows the states of a call as its table of transitions has them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from gateway.core.call_events import CallerCancelled, Tick, Written
from gateway.core.call_states import CallState

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("call_states", ROOT / "docs" / "call_states.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_current(generator: ModuleType) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert page == generator.redrawn(page)


def test_a_page_without_a_place_is_refused(generator: ModuleType) -> None:
    with pytest.raises(ValueError, match="0 places"):
        generator.redrawn("no place\n")


def test_events_that_lead_to_one_state_share_an_arrow(generator: ModuleType) -> None:
    table = {
        CallState.FINISHING: {Written: (CallState.ENDED,), Tick: (CallState.FINISHING, CallState.ENDED)},
        CallState.ENDED: {CallerCancelled: (CallState.ENDED,)},
    }
    assert generator.drawing(table).splitlines() == [
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> new",
        "    finishing --> finishing: tick",
        "    finishing --> ended: written, tick",
        "    ended --> [*]",
        "```",
    ]
