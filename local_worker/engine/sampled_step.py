"""The results of a step: samples stay on the device for the next step, and are copied to the host for the core."""

from collections.abc import Iterator, Sequence

import torch

from local_worker.core.batch import SampledLogprobs, Slice, StepResult
from local_worker.engine.matchers import TokenMasks
from local_worker.engine.transfer import Download, upload

Found = Iterator[tuple[float, list[float], list[int]]]  # of each row: the token's value, the most likely values and ids
SCORED_AT_ONCE = 64  # rows; their log-probabilities take 32 bits per entry of the vocabulary


class ScoredPrompts:
    """The log-probabilities of prompts' tokens, from `logits` [scored tokens of all `slices`, vocabulary]."""

    def __init__(self, logits: torch.Tensor, slices: Sequence[Slice]) -> None:
        self._pieces = [piece for piece in slices if piece.scored]
        self.tensors: list[torch.Tensor] = []
        if self._pieces:
            most = max(piece.sampling.prompt_logprobs or 0 for piece in self._pieces)
            [tokens] = upload([[token for piece in self._pieces for token in piece.scored]], logits.device)
            parts = [
                _logprobs(logits[start : start + SCORED_AT_ONCE], tokens[start : start + SCORED_AT_ONCE], most)
                for start in range(0, len(tokens), SCORED_AT_ONCE)
            ]
            self.tensors = [torch.cat(columns) for columns in zip(*parts, strict=True)]

    def scores(self, found: Found) -> tuple[tuple[SampledLogprobs, ...], ...]:
        """Return the log-probabilities of each slice that has `scored`, from the `tensors` on the host."""
        return tuple(
            tuple(_entry(piece.sampling.prompt_logprobs or 0, found) for _ in piece.scored) for piece in self._pieces
        )


class SampledStep:
    """A PendingStep whose `tokens` [rows] are on the device.

    Log-probabilities are the model's own: before biases, penalties, temperature and truncation.
    """

    def __init__(
        self,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        slices: Sequence[Slice],
        prompts: ScoredPrompts,
        masks: TokenMasks,
    ) -> None:
        self.tokens = tokens
        self._masks = masks
        self._prompts = prompts
        self._alternatives = [piece.sampling.logprobs for piece in slices]
        self._sampled = self._of_samples(logits)
        self._download = Download(tokens, *self._sampled, *prompts.tensors)

    def _of_samples(self, logits: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return what _logprobs returns for the rows that request log-probabilities; no tensor if no row does."""
        most = max((count for count in self._alternatives if count is not None), default=None)
        if most is None:
            return ()
        [rows] = upload([[row for row, count in enumerate(self._alternatives) if count is not None]], logits.device)
        return _logprobs(logits.index_select(0, rows), self.tokens.index_select(0, rows), most)

    def wait(self) -> StepResult:
        """Return the samples and log-probabilities once they are on the host; see PendingStep."""
        tokens, *columns = (tensor.tolist() for tensor in self._download.wait())
        own = len(self._sampled)
        sampled: Found = zip(*columns[:own], strict=True)
        logprobs = tuple(None if count is None else _entry(count, sampled) for count in self._alternatives)
        scores = self._prompts.scores(zip(*columns[own:], strict=True))
        return StepResult(tuple(tokens), logprobs if own else (), scores, *self._masks[1:])

    def known_tokens(self) -> list[int]:
        """Return the samples once they are on the host; raises the device's error."""
        tokens: list[int] = self._download.wait()[0].tolist()
        return tokens


def _logprobs(logits: torch.Tensor, tokens: torch.Tensor, most: int) -> Sequence[torch.Tensor]:
    """Return the log-probabilities of `tokens` [n], and the `most` highest ones with their tokens' ids [n, most].

    `logits` are [n, vocabulary].
    """
    logprobs = logits.float().log_softmax(dim=-1)
    chosen = logprobs.gather(1, tokens[:, None])[:, 0]
    return chosen, *logprobs.topk(min(most, logprobs.shape[1]), dim=-1)


def _entry(alternatives: int, found: Found) -> SampledLogprobs:
    logprob, values, ids = next(found)
    return SampledLogprobs(logprob, tuple(zip(ids, values, strict=True))[:alternatives])
