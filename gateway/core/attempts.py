"""The rule for placing a request again after it lost its worker."""

from dataclasses import dataclass, field

MAX_ATTEMPTS = 3  # consecutive attempts without a token


@dataclass(slots=True)
class Attempts:
    """The attempts of one request so far; `tried` holds instances: a restarted worker has a new instance."""

    number: int = 0
    tried: list[str] = field(default_factory=list)
    started: bool = False  # whether this attempt has entered a running batch
    charged: bool = False  # whether any attempt has brought a token: then the call has paid for its prompt
    _fruitless: int = 0  # attempts since the last token
    _excused: list[str] = field(default_factory=list)  # instances; each can be excused once

    def begin(self) -> None:
        """Begin a new attempt, before the request is placed."""
        self.number += 1
        self._fruitless += 1
        self.started = False

    def placed(self, instance: str) -> None:
        """Record the instance chosen for this attempt; later attempts exclude it."""
        self.tried.append(instance)

    def entered(self) -> None:
        """Record that the attempt has entered its worker's running batch."""
        self.started = True

    def advanced(self) -> None:
        """Record that a token arrived."""
        self._fruitless, self.charged = 0, True

    def excuse(self) -> None:
        """Do not count this attempt, which was lost after a stall of the gateway; at most once for each instance."""
        if self.tried[-1] not in self._excused:
            self._excused.append(self.tried.pop())
            self._fruitless = max(0, self._fruitless - 1)

    @property
    def exhausted(self) -> bool:
        """Whether a request that now loses its worker fails."""
        return self._fruitless >= MAX_ATTEMPTS

    def check_invariants(self) -> None:
        """Raise AssertionError if the counts of attempts contradict each other."""
        assert 0 <= self._fruitless <= min(self.number, MAX_ATTEMPTS), f"{self._fruitless} of {self.number} fruitless"
        counted = self.number - len(self._excused)
        assert len(self.tried) in (counted, counted - 1), f"{self.tried} tried in {counted} attempts that count"
        assert self.charged or self._fruitless == counted, (
            f"{self._fruitless} of {counted} fruitless, and no token came"
        )
