"""The floor of the background class: what it gets however much interactive requests want, so that it never starves.

A class that was given no token for PATIENCE steps gets a place of the batch, the pages of a request that needs at most
a quarter of memory, and a PART-th of each step's tokens, until its request has ended. It has a PART-th of the places
and of memory on average: after a request that held more it is denied the floor for as much longer.
"""

PART = 32
PATIENCE = 128  # steps
MOST_PAGES = 4  # a request has at most one MOST_PAGES-th of memory by the floor
WHOLE = PART * 1_000_000  # all places, or all of memory


class Floor:
    """Whether the class has the floor in a step. Credit is in parts of WHOLE, times steps."""

    def __init__(self) -> None:
        self._is_due = False
        self._credit = self._least = -PATIENCE * (WHOLE // PART)

    def is_due(self, *, is_running: bool) -> bool:
        """Return whether the class has the floor in the next step, before which a request of it runs or none does."""
        self._is_due = self._is_due and (is_running or self._credit == 0)
        return self._is_due

    def starved(self) -> None:
        """Record a step without the floor in which the class wanted tokens and got none."""
        self._credit = min(0, self._credit + WHOLE // PART)
        self._is_due = self._credit == 0

    def served(self) -> None:
        """Record a step without the floor in which the class got tokens, or wanted none."""
        if self._credit > self._least:
            self._credit = max(self._least, self._credit - WHOLE // PART)

    def used(self, held: int, *, is_pressed: bool) -> None:
        """Record a step with the floor: which part of WHOLE the class holds, and whether interactive requests left
        nothing to others."""
        if held:
            self._credit = min(0, self._credit + WHOLE // PART - held)
        self._is_due = is_pressed

    def check_invariants(self) -> None:
        """Raise AssertionError if the class may take more than it was denied."""
        assert self._credit <= 0, f"credit {self._credit}"
