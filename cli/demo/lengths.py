"""The lengths of the demo's prompts and answers, in tokens.

Prompts are token ids instead of text, so that they have the same length for every model. Prefixes are cached in whole
pages, so that lengths depend on the size of a page.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The lengths for pages of a size; a question and its answer fill whole pages."""

    page: int
    prefix: int  # at the start of all prompts of a user
    question: int  # unique to a prompt
    answer: int

    @property
    def prompt(self) -> int:
        """Return the length of a prompt in tokens."""
        return self.prefix + self.question

    @property
    def cache(self) -> int:
        """The size of a worker's KV cache, which fits the prefix of one user and six calls that share it.

        A scheduler that alternates between users with every call evicts each user's prefix before its next call. The
        cache is small because the bound grows with it (docs/fairness.md).
        """
        return self.prefix + 6 * (self.question + self.answer)

    @property
    def quantum(self) -> int:
        """The cost of eight calls whose prefix is cached, in cost units."""
        return 8 * (self.question + 2 * self.answer)


SMALL_PAGES = Lengths(page=4, prefix=64, question=8, answer=4)
LARGE_PAGES = Lengths(page=32, prefix=256, question=24, answer=8)


def lengths_for(engine: str) -> Lengths:
    """Return the lengths for an engine; vLLM's attention on a CPU needs pages of 32 tokens."""
    return LARGE_PAGES if engine == "vllm" else SMALL_PAGES
