"""How much each attack does: little in the test suite, as much as one asks for with `make attack`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Each is an option of pytest: `pytest tests/system/attacks --fuzzed 1000000`."""

    rounds: int = 2  # of faults
    fuzzed: int = 800  # calls
    calls: int = 300  # of many users
    users: int = 150
    frames: int = 3000  # of each flood
    crafted: int = 1 << 15  # bytes of a text that is made to take long
    honest: int = 3  # calls beside a connection that sends large bodies in a loop
    streams: int = 1  # of a victim beside each attack that should not slow it; more are compared with a control
    slope: int = 420  # calls of all kinds, after a third of which memory is level
