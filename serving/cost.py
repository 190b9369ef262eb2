"""What service costs, in integer micro-units (floats drift and break closed forms).

A cost function gives the numerator only; `charge` divides once by the request's weight, which is its share (tier)
times its norm, frozen when the request enters, in thousandths.
"""

from dataclasses import astuple, dataclass, fields
from typing import Protocol

MICRO = 1_000_000
WEIGHT_ONE = 1_000
MAX_WEIGHT = 1_000_000  # of a request, and so of a share
MOST_PER_TOKEN = 1_000


class Cost(Protocol):
    """Cost of processing tokens, in micro-units; decoding costs no less per token the longer an output is."""

    def extend(self, tokens: int, system_tokens: int) -> int:
        """Cost of computing `tokens` prompt tokens that no cache held, `system_tokens` of them of system messages.

        No tokens cost nothing.
        """

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        """Cost of generating `tokens` more after `output_tokens`, for a prompt of `prompt_tokens`."""


@dataclass(frozen=True, slots=True)
class WeightedTokens:
    """`w_e * n_e + w_q * n_q` (DLPM section 3; VTC section 3.1), default 1 and 2 as in both papers."""

    w_e: int = 1
    w_q: int = 2

    def extend(self, tokens: int, system_tokens: int) -> int:
        """See Cost."""
        return self.w_e * tokens * MICRO

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        """See Cost."""
        return self.w_q * tokens * MICRO


@dataclass(frozen=True, slots=True)
class Profiled:
    """`h(n_p, n_q) = 2.1 n_p + n_q + 0.04 n_p n_q + 0.032 n_q^2 + 11.46` (VTC Appendix B.2).

    The constant is charged with the prompt. Of the prompt, the linear term counts what no cache held, and the product,
    which is attention, all.
    """

    def extend(self, tokens: int, system_tokens: int) -> int:
        """See Cost."""
        return 2_100_000 * tokens + 11_460_000 if tokens else 0

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        """See Cost: `h(n_p, n_q + tokens) - h(n_p, n_q)`."""
        after = output_tokens + tokens
        return tokens * (MICRO + 40_000 * prompt_tokens) + 32_000 * (after**2 - output_tokens**2)


@dataclass(frozen=True, slots=True)
class Normalized:
    """`alpha L_I + beta L_S + gamma L_O` (FairServe section 4.3), default 1, 2, 1: input, system and output tokens.

    What the application normally needs is the request's norm, a part of its weight.
    """

    alpha: int = 1
    beta: int = 2
    gamma: int = 1

    def extend(self, tokens: int, system_tokens: int) -> int:
        """See Cost."""
        return (self.alpha * (tokens - system_tokens) + self.beta * system_tokens) * MICRO

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        """See Cost."""
        return self.gamma * tokens * MICRO


NamedCost = WeightedTokens | Profiled | Normalized
COSTS: dict[str, type[NamedCost]] = {
    "weighted-tokens": WeightedTokens,
    "profiled": Profiled,
    "normalized": Normalized,
}


def parse_cost(text: str) -> NamedCost:
    """`normalized` or, with numbers for its own, `normalized:1,3,1`; raises ValueError that says what is wrong."""
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
    """What `parse_cost` makes `cost` of, with all its numbers: costs are equal if their names are."""
    name = next(name for name, made in COSTS.items() if made is type(cost))
    numbers = ",".join(map(str, astuple(cost)))
    return f"{name}:{numbers}" if numbers else name


def within_limits(weight: float) -> float:
    """The weight nearest to `weight` that every service takes."""
    return min(max(weight, 1 / WEIGHT_ONE), MAX_WEIGHT)


def weight_thousandths(weight: float) -> int:
    """A weight (share x norm, > 0) as the integer that `charge` divides by, at least one thousandth."""
    return max(1, round(weight * WEIGHT_ONE))


def charge(micro: int, weight: int) -> int:
    """`micro` micro-units of service as seen by an account of `weight` thousandths."""
    return micro * WEIGHT_ONE // weight
