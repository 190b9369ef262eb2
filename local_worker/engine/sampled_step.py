"""The samples of a step: they stay on the device for the next step, and are copied to the host for the core."""

from collections.abc import Iterator, Sequence

import torch

from local_worker.core.batch import SampledLogprobs, Slice, StepResult
from local_worker.engine.transfer import Download, upload


class SampledStep:
    """A PendingStep whose `tokens` [rows] are on the device.

    Log-probabilities are the model's own: before penalties, temperature and truncation.
    """

    def __init__(self, tokens: torch.Tensor, logits: torch.Tensor, slices: Sequence[Slice]) -> None:
        self.tokens = tokens
        asked = [piece.sampling.logprobs for piece in slices]
        self._alternatives = asked if any(count is not None for count in asked) else []
        self._download = Download(tokens, *self._logprobs(logits))

    def _logprobs(self, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the log-probabilities for the n rows that request them.

        The tensors are: the sampled token's [n], then those of the most likely tokens and their ids [n, largest number
        requested]. Return no tensor if no row requests any.
        """
        most = max((count for count in self._alternatives if count is not None), default=None)
        if most is None:
            return ()
        [rows] = upload([[row for row, count in enumerate(self._alternatives) if count is not None]], logits.device)
        logprobs = logits.index_select(0, rows).float().log_softmax(dim=-1)
        chosen = logprobs.gather(1, self.tokens.index_select(0, rows)[:, None])[:, 0]
        return chosen, *logprobs.topk(min(most, logprobs.shape[1]), dim=-1)

    def wait(self) -> StepResult:
        """Return the samples and log-probabilities once they are on the host; see PendingStep."""
        tokens, *logprobs = (tensor.tolist() for tensor in self._download.wait())
        if not logprobs:
            return StepResult(tuple(tokens))
        found = zip(*logprobs, strict=True)
        return StepResult(tuple(tokens), tuple(_entry(count, found) for count in self._alternatives))


def _entry(alternatives: int | None, found: Iterator[tuple[float, list[float], list[int]]]) -> SampledLogprobs | None:
    if alternatives is None:
        return None
    logprob, values, ids = next(found)
    return SampledLogprobs(logprob, tuple(zip(ids, values, strict=True))[:alternatives])
