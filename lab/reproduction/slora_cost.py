"""The cost function that the VTC authors used where the paper prints "profiled" (Appendix B.2).

It is taken from their published code (github.com/Ying1123/VTC-artifact, slora/server/router/req_queue.py). The paper
prints ten times these coefficients, rounded to two digits, which is `serving.cost.Profiled`; for a long output this is
1.5 % less.
"""

CONSTANT, INPUT, OUTPUT, PRODUCT, SQUARE = 114_601_454, 21_001_891, 10_075_395, 398_680, 324_733  # 10^-8 units
PER_MICRO = 100


class SloraProfiled:
    """`h(n_p, n_q) = 1.14601454 + 0.21001891 n_p + 0.10075395 n_q + 0.0039868 n_p n_q + 0.00324733 n_q^2`.

    As in `serving.cost.Profiled`, the constant is charged with the prompt. The whole function is rounded down to
    micro-units, so that the parts of an output cost together as much as the whole output.
    """

    def extend(self, tokens: int, system_tokens: int) -> int:
        """See serving.cost.Cost."""
        return _of(tokens, 0) if tokens else 0

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        """See serving.cost.Cost."""
        return _of(prompt_tokens, output_tokens + tokens) - _of(prompt_tokens, output_tokens)


def _of(inputs: int, outputs: int) -> int:
    """Return the cost in micro-units."""
    linear = CONSTANT + INPUT * inputs + OUTPUT * outputs
    return (linear + PRODUCT * inputs * outputs + SQUARE * outputs**2) // PER_MICRO
