"""Cost functions for service, in integer micro-units (sums of floats drift, and closed forms would not match them).

A cost function gives only the numerator. `charge` divides it once by the request's weight in thousandths. The weight
is the share (tier) times the norm, and does not change after the request has entered.
"""

from dataclasses import astuple, dataclass, fields
from typing import Protocol

MICRO = 1_000_000
WEIGHT_ONE = 1_000
MAX_WEIGHT = 1_000_000  # largest weight of a request, and therefore largest share
MOST_PER_TOKEN = 1_000


class Cost(Protocol):
    """Cost of processing tokens, in micro-units. The cost per decoded token never falls as the output grows."""

    def extend(self, tokens: int, system_tokens: int) -> int:
        """Return the cost of computing `tokens` prompt tokens that were not cached; 0 tokens cost 0.

        `system_tokens` of them belong to system messages.
        """

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        """Return the cost of generating `tokens` more tokens after `output_tokens`, for a prompt of `prompt_tokens`."""


@dataclass(frozen=True, slots=True)
class WeightedTokens:
    """The cost `w_e * n_e + w_q * n_q` (DLPM section 3; VTC section 3.1); the defaults 1 and 2 are both papers'."""

    w_e: int = 1
    w_q: int = 2

    def extend(self, tokens: int, system_tokens: int) -> int:
        return self.w_e * tokens * MICRO

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        return self.w_q * tokens * MICRO


@dataclass(frozen=True, slots=True)
class Profiled:
    """The cost `h(n_p, n_q) = 2.1 n_p + n_q + 0.04 n_p n_q + 0.032 n_q^2 + 11.46` (VTC Appendix B.2).

    The constant is charged with the prompt. The linear term counts the prompt tokens that were not cached. The product
    stands for attention and counts all prompt tokens. See Cost.
    """

    def extend(self, tokens: int, system_tokens: int) -> int:
        return 2_100_000 * tokens + 11_460_000 if tokens else 0

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        """See Cost; the result is `h(n_p, n_q + tokens) - h(n_p, n_q)`."""
        after = output_tokens + tokens
        return tokens * (MICRO + 40_000 * prompt_tokens) + 32_000 * (after**2 - output_tokens**2)


@dataclass(frozen=True, slots=True)
class Normalized:
    """The cost `alpha L_I + beta L_S + gamma L_O` of input, system and output tokens (FairServe section 4.3).

    The defaults are 1, 2 and 1. The tokens that the application normally needs are the request's norm, a factor of its
    weight. See Cost.
    """

    alpha: int = 1
    beta: int = 2
    gamma: int = 1

    def extend(self, tokens: int, system_tokens: int) -> int:
        return (self.alpha * (tokens - system_tokens) + self.beta * system_tokens) * MICRO

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        return self.gamma * tokens * MICRO


NamedCost = WeightedTokens | Profiled | Normalized
COSTS: dict[str, type[NamedCost]] = {
    "weighted-tokens": WeightedTokens,
    "profiled": Profiled,
    "normalized": Normalized,
}


def parse_cost(text: str) -> NamedCost:
    """Parse `normalized` or, with other factors, `normalized:1,3,1`; raise ValueError, which names the mistake."""
    name, colon, numbers = text.partition(":")
    if name not in COSTS:
        raise ValueError(f"must be one of {', '.join(COSTS)}, got {name!r}")
    expected, given = fields(COSTS[name]), numbers.split(",") if colon else []
    if colon and len(given) != len(expected):
        names = ", ".join(field.name for field in expected) or "none"
        raise ValueError(f"{name} takes {len(expected)} numbers ({names}), got {text!r}")
    for field, number in zip(expected, given, strict=False):
        if not number.isdecimal() or not 1 <= int(number) <= MOST_PER_TOKEN:
            raise ValueError(f"{field.name} must be a whole number from 1 to {MOST_PER_TOKEN}, got {number!r}")
    return COSTS[name](*map(int, given))


def cost_name(cost: NamedCost) -> str:
    """Return the text from which `parse_cost` makes `cost`, with all factors: equal names mean equal costs."""
    name = next(name for name, made in COSTS.items() if made is type(cost))
    numbers = ",".join(map(str, astuple(cost)))
    return f"{name}:{numbers}" if numbers else name


def within_limits(weight: float) -> float:
    """Return the weight nearest to `weight` that every service accepts."""
    return min(max(weight, 1 / WEIGHT_ONE), MAX_WEIGHT)


def weight_thousandths(weight: float) -> int:
    """Return a weight (share x norm, > 0) in thousandths, at least 1: the integer by which `charge` divides."""
    return max(1, round(weight * WEIGHT_ONE))


def charge(micro: int, weight: int) -> int:
    """Return what `micro` micro-units of service cost an account of `weight` thousandths, in micro-units."""
    return micro * WEIGHT_ONE // weight
