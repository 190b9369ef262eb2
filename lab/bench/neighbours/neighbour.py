"""The neighbours of the quiet user, one row of the table each."""

from dataclasses import dataclass

from lab.bench.neighbours.calls import (
    LEAST_TOKENS,
    Call,
    alternates,
    constrained,
    generates,
    hangs_up,
    is_refused,
    of_an_agent,
    reads_slowly,
    tokenizes,
)

LONGEST_PROMPT = 32_768  # tokens, with the output: of the engine for which the lengths were chosen


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A tenant whose `users` keep `open` calls open together, and begin at most `per_second` of them in a second."""

    name: str
    call: Call
    open: int
    users: int = 1
    per_second: float = 0.0  # 0: without a limit


def neighbours(longest: int) -> tuple[Neighbour, ...]:
    """Return all neighbours, of whom the longest prompt has `longest` tokens with its output, and the others in
    proportion."""

    def part(tokens: int) -> int:
        return max(LEAST_TOKENS, tokens * longest // LONGEST_PROMPT)

    long_outputs = generates(part(256), part(2000))
    return (
        Neighbour("short calls", generates(part(128), part(64)), open=64),
        Neighbour(f"prompts of {part(4096):,}", generates(part(4096), 16), open=6),
        Neighbour(f"prompts of {longest:,}", generates(longest - 16, 16), open=4),
        Neighbour(f"outputs of {part(2000):,}", long_outputs, open=96),
        Neighbour(
            f"prompts of {part(16_384):,} and outputs of {part(2000):,}",
            alternates(generates(part(16_384), 16), long_outputs),
            open=64,
        ),
        Neighbour("one-token calls, 1,000 a second", generates(16, 1), open=200, per_second=1000.0),
        Neighbour("prompts that never repeat", generates(part(8192), 1), open=16),
        Neighbour("callers that hang up", hangs_up(part(256), part(2000), after=4), open=64),
        Neighbour("slow readers", reads_slowly(part(64), part(400), seconds=0.5), open=96),
        Neighbour("a tenant with 50 users", generates(2 * part(256), part(64), common=part(256)), open=100, users=50),
        Neighbour("an agent with 50 sub-agents", of_an_agent(4 * part(512), part(64), common=3 * part(512)), open=51),
        Neighbour("costly constraints", constrained(32), open=32),
        Neighbour("texts that are hard to tokenize", tokenizes(4 * part(30_000)), open=16),
        Neighbour("bodies that are refused", is_refused(200_000), open=16),
    )
