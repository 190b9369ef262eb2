"""What a step sampled: on the device for the next step, on its way to the host for everybody else."""

from collections.abc import Iterator, Sequence

import torch

from local_worker.core.batch import SampledLogprobs, Slice, StepResult
from local_worker.engine.transfer import Download, upload


class SampledStep:
    """See Pending. `tokens` [rows] are on the device.

    Log-probabilities are the model's own: before penalties, temperature and truncation.
    """

    def __init__(self, tokens: torch.Tensor, logits: torch.Tensor, slices: Sequence[Slice]) -> None:
        self.tokens = tokens
        asked = [piece.sampling.logprobs for piece in slices]
        self._alternatives = asked if any(count is not None for count in asked) else []
        self._download = Download(tokens, *self._logprobs(logits))

    def _logprobs(self, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Of the rows that ask: the chosen token's [n], then the most likely tokens' and their ids [n, most asked]."""
        most = max((count for count in self._alternatives if count is not None), default=None)
        if most is None:
            return ()
        [rows] = upload([[row for row, count in enumerate(self._alternatives) if count is not None]], logits.device)
        logprobs = logits.index_select(0, rows).float().log_softmax(dim=-1)
        chosen = logprobs.gather(1, self.tokens.index_select(0, rows)[:, None])[:, 0]
        return chosen, *logprobs.topk(min(most, logprobs.shape[1]), dim=-1)

    def wait(self) -> StepResult:
        """See Pending."""
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
