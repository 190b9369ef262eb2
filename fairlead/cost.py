"""What service costs, in integer micro-units (floats drift and break closed forms).

A cost function gives the numerator only; `charge` divides once by the request's weight, which is its share (tier)
times its norm, frozen when the request enters, in thousandths.
"""

from dataclasses import dataclass
from typing import Protocol

MICRO = 1_000_000
WEIGHT_ONE = 1_000


class Cost(Protocol):
    """Marginal cost of processing tokens, in micro-units."""

    def extend(self, tokens: int) -> int:
        """Cost of computing `tokens` prompt tokens that no cache held."""

    def decode(self, tokens: int) -> int:
        """Cost of generating `tokens` output tokens."""


@dataclass(frozen=True, slots=True)
class WeightedTokens:
    """`w_e * n_e + w_q * n_q` (DLPM section 3; VTC section 3.1), default 1 and 2 as in both papers."""

    w_e: int = 1
    w_q: int = 2

    def extend(self, tokens: int) -> int:
        """See Cost."""
        return self.w_e * tokens * MICRO

    def decode(self, tokens: int) -> int:
        """See Cost."""
        return self.w_q * tokens * MICRO


def weight_thousandths(weight: float) -> int:
    """A weight (share x norm, > 0) as the integer that `charge` divides by, at least one thousandth."""
    return max(1, round(weight * WEIGHT_ONE))


def charge(micro: int, weight: int) -> int:
    """`micro` micro-units of service as seen by an account of `weight` thousandths."""
    return micro * WEIGHT_ONE // weight
