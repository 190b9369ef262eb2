"""Three users of one model: one asks single questions, one is an agent, and one floods.

Everything is drawn from a seed, so that every system is asked for the same: texts and lengths depend on the number of a
call alone, and the quiet user asks at the same instants, whether or not earlier questions were answered.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

QUIET, AGENT, FLOOD = USERS = ("quiet", "agent", "flood")
# In the tokenizers of today each of them is one token where it follows a space.
# fmt: off
WORDS = (
    "anchor", "boat", "bridge", "chain", "channel", "coast", "current", "deck", "engine", "fish", "flag", "fleet",
    "island", "lake", "light", "line", "map", "mile", "ocean", "port", "rope", "sail", "sand", "sea", "ship",
    "shore", "signal", "sky", "star", "storm", "sun", "tide", "tower", "wave", "wind", "winter",
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Asked:
    """The content of one call: the text to continue, and the number of tokens."""

    prompt: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Question:
    """A call of the quiet user, `at` seconds after its phase has begun."""

    at: float
    asked: Asked


@dataclass(frozen=True, slots=True)
class Workload:
    """The demand of the three users; lengths are in words, which are tokens, and times in seconds."""

    seed: int = 0
    flood_open: int = 64  # calls that the flooder keeps open
    flood_prefix: int = 64  # common to all its prompts
    flood_own: int = 64
    flood_answers: tuple[int, int] = (16, 48)  # shortest and longest
    quiet_every: float = 2.0  # mean time between two questions
    quiet_prompt: int = 32
    quiet_answer: int = 8
    agent_open: int = 2  # interactions at a time
    agent_prefix: int = 256  # common to all its interactions
    agent_calls: int = 5  # of an interaction
    agent_step: int = 32  # of each observation
    agent_answer: int = 24

    def questions(self, phase: str, seconds: float) -> Iterator[Question]:
        """Yield the quiet user's questions of a phase, at intervals between half and one and a half of the mean."""
        dice = self._dice(phase)
        at = self.quiet_every / 2
        while at < seconds:
            yield Question(at, Asked(_text(dice, self.quiet_prompt), self.quiet_answer))
            at += self.quiet_every * dice.uniform(0.5, 1.5)

    def observations(self, number: int) -> Iterator[str]:
        """Yield the texts that the agent adds to its prompt before each call of an interaction; the first is long."""
        dice = self._dice(AGENT, number)
        opening = _text(self._dice(AGENT), self.agent_prefix)
        for call in range(self.agent_calls):
            yield (_text(dice, self.agent_step) if call else opening + _text(dice, self.agent_step))

    def flood(self, number: int) -> Asked:
        """Return the flooder's call of this number."""
        dice = self._dice(FLOOD, number)
        prompt = _text(self._dice(FLOOD), self.flood_prefix) + _text(dice, self.flood_own)
        return Asked(prompt, dice.randint(*self.flood_answers))

    def warm_up(self, number: int) -> Asked:
        """Return a call that the three users do not make."""
        return Asked(_text(self._dice("warm-up", number), self.flood_prefix + self.flood_own), self.quiet_answer)

    def _dice(self, *what: object) -> random.Random:
        return random.Random(repr((self.seed, *what)))


def _text(dice: random.Random, words: int) -> str:
    return "".join(f" {dice.choice(WORDS)}" for _ in range(words))
