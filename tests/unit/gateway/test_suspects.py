"""A worker that has left the cluster keeps its requests for as long as it sends something."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.suspects import Suspects

SILENT_SECONDS = 10


@dataclass
class Link:
    received: int = 0
    attempts: list[str] = field(default_factory=lambda: ["r"])


def lost_at(messages: set[int], ends: int, until: int) -> int | None:
    """When a worker is lost that leaves at 0: a period without a message, or the first look after its last attempt."""
    for period in range(0, until, SILENT_SECONDS):
        due = period + SILENT_SECONDS
        if due > until:
            return None
        if ends <= due or not any(period < at <= due for at in messages):
            return due
    return None


@given(st.sets(st.integers(1, 60), max_size=20), st.integers(1, 80), st.sets(st.integers(1, 60), max_size=5))
def test_lost_after_the_first_silent_period(messages: set[int], ends: int, changes: set[int]) -> None:
    """`ends`: when its last attempt ends; at `changes` other members come and go, which changes nothing."""
    suspects: Suspects[str] = Suspects(SILENT_SECONDS)
    link = Link()
    assert suspects.lost({"a": link}, set(), 0) == []
    for now in range(1, 61):
        link.received += now in messages
        if now == ends:
            link.attempts.clear()
        if now in changes or now == suspects.next_deadline():
            suspects.check_invariants()
            if suspects.lost({"a": link}, {"other"}, now):
                assert now == lost_at(messages, ends, 60)
                assert suspects.next_deadline() is None
                return
    assert lost_at(messages, ends, 60) is None


def test_members_are_no_suspects_and_idle_workers_are_lost_at_once() -> None:
    suspects: Suspects[str] = Suspects(SILENT_SECONDS)
    links = {"member": Link(), "idle": Link(attempts=[]), "busy": Link()}
    assert suspects.lost(links, {"member"}, 0) == ["idle"]
    assert suspects.next_deadline() == SILENT_SECONDS
    del links["idle"]
    assert suspects.lost(links, {"member", "busy"}, 5) == []
    assert suspects.next_deadline() is None, "it came back"
    assert suspects.lost(links, {"member"}, 6) == []
    assert suspects.lost(links, {"member"}, 15) == []
    assert suspects.next_deadline() == 16
    assert suspects.lost(links, {"member"}, 16) == ["busy"]
