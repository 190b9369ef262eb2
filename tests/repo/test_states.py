"""docs/architecture.md shows the states of a call and of a worker's request as their tables have them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from gateway.core.call_events import CallerCancelled, Tick, Written
from gateway.core.call_states import CallState

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("states", ROOT / "docs" / "states.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawings_are_current(generator: ModuleType) -> None:
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
    assert generator.call_drawing(table).splitlines() == [
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> new",
        "    finishing --> finishing: tick",
        "    finishing --> ended: written, tick",
        "    ended --> [*]",
        "```",
    ]


def test_a_state_is_shown_with_its_collection_and_the_events_that_lead_out_of_it(generator: ModuleType) -> None:
    lines = generator.request_drawing().splitlines()
    assert "| running | `RequestQueue.running` | preempted, completed, aborted, expired, failed |" in lines
    assert "| ended | none | - |" in lines
    assert "    running --> running: advanced" in lines
    assert "    running --> ended: completed, aborted, expired, failed" in lines
