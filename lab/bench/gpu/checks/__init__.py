"""The checks in the order of their worth, each with the seconds after which it is stopped; each has a module here.

The limits include the start of a process and of the engine, which takes up to half a minute for the first check that
needs it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """The name of a check and of its module, whose function `rows` measures; and its limit in seconds."""

    name: str
    seconds: float


QUICK = (
    Check("device", 60),
    Check("device_tests", 120),
    Check("decode", 70),
    Check("prefill", 50),
    Check("mixed", 40),
    Check("run_ahead", 50),
    Check("policies", 90),
    Check("long_prompt", 60),
)
MORE = (
    Check("neighbours", 230),
    Check("served", 170),
    Check("attention", 60),
    Check("long_contexts", 40),
    Check("vllm", 900),
)
