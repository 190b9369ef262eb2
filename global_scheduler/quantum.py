"""DoubleQ's quantum Q^w, as scheduler and endpoint picker are configured."""

from serving.config import require

QUANTUM_TOKENS = 4096


def configured_quantum(policy: str, given: int | None) -> int:
    """Return Q^w in cost units; raises ConfigError when it is given for a policy that has none."""
    require(
        given is None or policy == "doubleq",
        f"quantum_tokens: only the policy doubleq has a quantum, got {given} with the policy {policy}",
    )
    return QUANTUM_TOKENS if given is None else given
