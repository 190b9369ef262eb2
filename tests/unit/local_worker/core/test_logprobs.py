"""Log-probabilities leave the worker with the bytes of their tokens, those of the output and those of the prompt."""

import pytest

from local_worker.core.batch import SampledLogprobs
from local_worker.core.output_text import SpelledLogprobs, TopLogprob, spelled, spelled_prompt


class Numerals:
    """A text in which each token is its number."""

    def push(self, tokens: object) -> tuple[str, str]:
        raise NotImplementedError

    def rest(self) -> str:
        raise NotImplementedError

    def token_bytes(self, token: int) -> bytes:
        return str(token).encode()


TEXT = Numerals()
SEVEN, EIGHT = SampledLogprobs(-0.5, ((7, -0.5), (3, -1.0))), SampledLogprobs(-2.0, ())


def test_a_token_and_its_rivals_are_spelled() -> None:
    assert spelled(7, SEVEN, TEXT) == SpelledLogprobs(
        b"7", -0.5, (TopLogprob(7, b"7", -0.5), TopLogprob(3, b"3", -1.0))
    )


def test_the_first_token_of_a_prompt_has_no_log_probability() -> None:
    first, *others = spelled_prompt([5, 7, 8], [SEVEN, EIGHT], TEXT)
    assert first == SpelledLogprobs(b"5", 0.0, ())
    assert others == [spelled(7, SEVEN, TEXT), spelled(8, EIGHT, TEXT)]
    with pytest.raises(ValueError, match="shorter"):
        spelled_prompt([5, 7, 8], [SEVEN], TEXT)
