"""VTC with length prediction (VTC Algorithm 3). Unit of fairness: as VTC.

The cost of the predicted output is charged at admission and corrected as the output is generated. Bound: none is
claimed. A correction can lower a counter, and the proof of Theorem 4.9 needs counters that only rise. The advantage is
a smaller gap in practice (VTC section 5.4).
"""

from local_worker.core.policies.protocol import QueuePolicyConfig
from local_worker.core.policies.vtc import Vtc
from local_worker.core.request import Request
from serving.bounded_client_map import BoundedClientMap
from serving.cost import charge

LAST_OUTPUTS = 5  # VTC section 5.1


class OutputLengths:
    """The number of tokens of each client's last five outputs, for the `most` clients whose outputs ended last."""

    def __init__(self, most: int) -> None:
        self._lengths: BoundedClientMap[str, tuple[int, ...]] = BoundedClientMap(most)

    def expected(self, client: str) -> int | None:
        """Return the mean length of the client's last outputs in tokens, rounded down; None if none is known."""
        lengths = self._lengths.get(client)
        return sum(lengths) // len(lengths) if lengths else None

    def ended(self, client: str, tokens: int) -> None:
        self._lengths[client] = (*(self._lengths.get(client) or ()), tokens)[-LAST_OUTPUTS:]
        self._lengths.rest(client)


class VtcPredict(Vtc):
    """The policy that predicts the mean length of the client's last five outputs; 0 before its first."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        super().__init__(config)
        self._lengths = OutputLengths(config.most_idle)
        self._predicted: dict[Request, int] = {}  # predicted output tokens of each admitted request

    @property
    def bound_micro(self) -> None:
        """Always None, since no bound is proved for corrections."""

    def _predict(self, request: Request) -> int:
        return self._lengths.expected(request.client) or 0

    def _entry_cost(self, request: Request, tokens: int) -> int:
        """Add the cost of the predicted output (lines 25 and 26), but only at the first admission."""
        cost = super()._entry_cost(request, tokens)
        if request in self._predicted:
            return cost
        self._predicted[request] = self._predict(request)
        return cost + self._charging.output(request, 0, self._predicted[request])

    def _ahead_cost(self, request: Request, ahead: range) -> int:
        """Return the cost of the tokens `ahead` without the predicted ones, which are charged already."""
        start = max(self._predicted[request], ahead.start)
        return self._charging.output(request, start, max(start, ahead.stop))

    def generated(self, request: Request, tokens: int) -> None:
        """Charge for output tokens beyond the prediction (lines 34-36); see QueuePolicy."""
        start = max(self._predicted[request], request.reserved, request.output_tokens - tokens)
        if request.output_tokens > start:
            self._charge(request, self._charging.output(request, start, request.output_tokens))

    def finished(self, request: Request) -> None:
        """Refund predicted tokens that were not generated (lines 37 and 38), except room charged ahead; see
        QueuePolicy."""
        self._correct(request)
        super().finished(request)

    def withdrawn(self, request: Request) -> None:
        """Remove a waiting `request`, and refund its prediction if it was admitted before a preemption; see
        QueuePolicy."""
        if request in self._predicted:
            self._correct(request)
        super().withdrawn(request)

    def _correct(self, request: Request) -> None:
        predicted, kept = self._predicted.pop(request), max(request.output_tokens, request.reserved)
        if predicted > kept:
            spare = self._charging.output(request, kept, predicted)
            self._add(request, -charge(spare, request.weight))
        self._lengths.ended(request.client, request.output_tokens)


class VtcOracle(VtcPredict):
    """The policy that takes `max_tokens` as each output's length, which is exact in simulations (VTC section 5.1,
    "oracle")."""

    def _predict(self, request: Request) -> int:
        return request.sampling.max_tokens
