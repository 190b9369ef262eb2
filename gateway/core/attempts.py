"""When a request whose worker is lost is placed again, and on what terms."""

from dataclasses import dataclass, field

MAX_ATTEMPTS = 3  # without a token


@dataclass(slots=True)
class Attempts:
    """Those of one request so far; `tried` names instances: a worker that comes back under its name is another one."""

    number: int = 0
    tried: list[str] = field(default_factory=list)
    started: bool = False  # this attempt has entered a running batch
    charged: bool = False  # some attempt has: what the prompt costs is paid
    _fruitless: int = 0  # since the last token
    _excused: list[str] = field(default_factory=list)  # instances, each once

    def begin(self) -> None:
        """The request is about to be placed."""
        self.number += 1
        self._fruitless += 1
        self.started = False

    def placed(self, instance: str) -> None:
        """It is: not there again."""
        self.tried.append(instance)

    def entered(self) -> None:
        """Its worker says that it has entered a running batch."""
        self.started = self.charged = True

    def advanced(self) -> None:
        """A token came."""
        self._fruitless = 0

    def excuse(self) -> None:
        """This attempt was lost while the gateway itself stood still: once for each worker that does not count."""
        if self.tried[-1] not in self._excused:
            self._excused.append(self.tried.pop())
            self._fruitless = max(0, self._fruitless - 1)

    @property
    def exhausted(self) -> bool:
        """Whether a request that is lost now is given up."""
        return self._fruitless >= MAX_ATTEMPTS

    def check_invariants(self) -> None:
        """Raise AssertionError when these attempts are impossible."""
        assert 0 <= self._fruitless <= min(self.number, MAX_ATTEMPTS), f"{self._fruitless} of {self.number} fruitless"
        counted = self.number - len(self._excused)
        assert len(self.tried) in (counted, counted - 1), f"{self.tried} tried in {counted} attempts that count"
        assert self.charged or not self.started, "started and not charged"
