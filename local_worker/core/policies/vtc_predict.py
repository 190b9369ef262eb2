"""VTC with length prediction (VTC Algorithm 3). Unit of fairness: as VTC.

The cost of the predicted output is charged at admission and corrected as the real one comes. Bound: none is claimed.
Corrections can lower a counter, and Theorem 4.9's proof needs counters that only rise; what is gained is a smaller gap
in practice (VTC section 5.4).
"""

from local_worker.core.policies.protocol import QueuePolicyConfig
from local_worker.core.policies.vtc import Vtc
from local_worker.core.request import Request
from serving.cost import charge

LAST_OUTPUTS = 5  # VTC section 5.1


class VtcPredict(Vtc):
    """Predicts the mean length of the client's last five outputs; nothing before its first."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        super().__init__(config)
        self._predicted: dict[Request, int] = {}  # of the requests that have been admitted

    @property
    def bound_micro(self) -> None:
        """None is claimed."""

    def _predict(self, request: Request) -> int:
        outputs = self._accounts[request.client].outputs
        return sum(outputs) // len(outputs) if outputs else 0

    def _entry_cost(self, request: Request, tokens: int) -> int:
        """Lines 25 and 26; a request that was preempted has its prediction already."""
        cost = super()._entry_cost(request, tokens)
        if request in self._predicted:
            return cost
        self._predicted[request] = self._predict(request)
        return cost + self._charging.output(request, 0, self._predicted[request])

    def _ahead_cost(self, request: Request, ahead: range) -> int:
        """What was predicted is paid."""
        start = max(self._predicted[request], ahead.start)
        return self._charging.output(request, start, max(start, ahead.stop))

    def generated(self, request: Request, tokens: int) -> None:
        """Lines 34-36: only what goes beyond the prediction."""
        start = max(self._predicted[request], request.reserved, request.output_tokens - tokens)
        if request.output_tokens > start:
            self._charge(request, self._charging.output(request, start, request.output_tokens))

    def finished(self, request: Request) -> None:
        """Lines 37 and 38: what was predicted and did not come is given back, but for room beyond the share."""
        self._correct(request)
        super().finished(request)

    def withdrawn(self, request: Request) -> None:
        """Given up while it waits; after a preemption its output has been predicted."""
        if request in self._predicted:
            self._correct(request)
        super().withdrawn(request)

    def _correct(self, request: Request) -> None:
        predicted, kept = self._predicted.pop(request), max(request.output_tokens, request.reserved)
        if predicted > kept:
            spare = self._charging.output(request, kept, predicted)
            self._add(request.client, -charge(spare, request.weight))
        account = self._accounts[request.client]
        account.outputs = (*account.outputs, request.output_tokens)[-LAST_OUTPUTS:]


class VtcOracle(VtcPredict):
    """Knows each output's length: in simulations `max_tokens` is it (VTC section 5.1, "oracle")."""

    def _predict(self, request: Request) -> int:
        return request.sampling.max_tokens
