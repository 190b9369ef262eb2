"""The neighbours of the quiet user, one row of the table each."""

from dataclasses import dataclass

from lab.bench.neighbours.calls import (
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

LONGEST_PROMPT = 32_768  # tokens, with the output


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A tenant whose `users` keep `open` calls open together, and begin at most `per_second` of them in a second."""

    name: str
    call: Call
    open: int
    users: int = 1
    per_second: float = 0.0  # 0: without a limit


NEIGHBOURS = (
    Neighbour("short calls", generates(128, 64), open=64),
    Neighbour("prompts of 4,096", generates(4096, 16), open=6),
    Neighbour("prompts of 32,768", generates(LONGEST_PROMPT - 16, 16), open=4),
    Neighbour("outputs of 2,000", generates(256, 2000), open=96),
    Neighbour(
        "prompts of 16,384 and outputs of 2,000", alternates(generates(16_384, 16), generates(256, 2000)), open=64
    ),
    Neighbour("one-token calls, 1,000 a second", generates(16, 1), open=200, per_second=1000.0),
    Neighbour("prompts that never repeat", generates(8192, 1), open=16),
    Neighbour("callers that hang up", hangs_up(256, 2000, after=4), open=64),
    Neighbour("slow readers", reads_slowly(64, 400, seconds=0.5), open=96),
    Neighbour("a tenant with 50 users", generates(512, 64, common=256), open=100, users=50),
    Neighbour("an agent with 50 sub-agents", of_an_agent(2048, 64, common=1536), open=51),
    Neighbour("costly constraints", constrained(32), open=32),
    Neighbour("texts that are hard to tokenize", tokenizes(120_000), open=16),
    Neighbour("bodies that are refused", is_refused(200_000), open=16),
)
