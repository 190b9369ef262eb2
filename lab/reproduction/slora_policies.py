"""The counters of the measured system, where they differ from the paper's description (VTC Algorithm 2).

They are taken from the authors' published code (github.com/Ying1123/VTC-artifact, slora/server/router/*_req_queue.py)
and checked against the order of admissions in their measurements. A client that returns to an empty queue is not
lifted, ties go to the client that was seen first, and a token is charged at the start of the step after its own.
"""

import random

from local_worker.core.policies.protocol import QueuePolicyConfig
from local_worker.core.policies.vtc import Vtc
from local_worker.core.request import Request
from serving.cost import charge

WEIGHT_OF_OLD = 4  # of 5: the prediction is a fractional moving average, not the mean of the last five


class SloraVtc(Vtc):
    """The authors' VTC: see the module's docstring."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        super().__init__(config)
        self._seen: dict[str, int] = {}  # clients numbered in order of their first requests

    @property
    def bound_micro(self) -> None:
        """None, because no bound is claimed."""

    def arrived(self, request: Request) -> None:
        """See QueuePolicy."""
        self._seen.setdefault(request.client, len(self._seen))
        super().arrived(request)

    def _lifted_counter(self, client: str) -> int:
        first = self._order.first()
        return max(self._counter(client), 0 if first is None else self._counter(first))

    def _rank(self, client: str) -> None:
        self._order.put(client, self._seen[client])

    def generated(self, request: Request, tokens: int) -> None:
        """Charge the earlier tokens of several decoding steps in one run, which were due when the later steps began."""
        self._pay(request, request.output_tokens - tokens, request.output_tokens - 1)

    def pay_latest(self, request: Request) -> None:
        """Charge the last token that `request` generated; lab.reproduction.slora defines when this is due."""
        self._pay(request, request.output_tokens - 1, request.output_tokens)

    def _pay(self, request: Request, start: int, stop: int) -> None:
        if stop > start:
            self._charge(request, self._charging.output(request, start, stop))


class SloraLcf(SloraVtc):
    """The same counters without any lift."""

    def _lifted_counter(self, client: str) -> int:
        return self._counter(client)


class SloraPredict(SloraVtc):
    """VTC with the predicted output charged at admission (VTC Algorithm 3)."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        super().__init__(config)
        self._average: dict[str, float] = {}
        self._predicted: dict[Request, float] = {}  # predicted tokens of running requests

    def _predict(self, request: Request) -> float:
        return self._average.get(request.client, 0.0)

    def _until(self, request: Request, predicted: float) -> int:
        """Return the cost of `predicted` output tokens; a fraction of a token costs that fraction of it."""
        whole = int(predicted)
        part = self._charging.output(request, whole, whole + 1) * (predicted - whole)
        return self._charging.output(request, 0, whole) + round(part)

    def _entry_cost(self, request: Request, tokens: int) -> int:
        predicted = self._predicted[request] = self._predict(request)
        return super()._entry_cost(request, tokens) + self._until(request, predicted)

    def _pay(self, request: Request, start: int, stop: int) -> None:
        """Charge each token beyond the prediction, and in full the token within which the prediction ends."""
        super()._pay(request, max(start, int(self._predicted[request])), stop)

    def finished(self, request: Request) -> None:
        """Refund the predicted tokens that were not generated."""
        predicted, made = self._predicted.pop(request), request.output_tokens
        if predicted > made:
            surplus = self._until(request, predicted) - self._until(request, made)
            self._add(request, -charge(surplus, request.weight))
        old = self._average.get(request.client, made)
        self._average[request.client] = (WEIGHT_OF_OLD * old + made) / (WEIGHT_OF_OLD + 1)
        super().finished(request)


class SloraOracle(SloraPredict):
    """VTC with a prediction that equals each output's real length."""

    def _predict(self, request: Request) -> float:
        return request.sampling.max_tokens


class SloraHalfRight(SloraPredict):
    """VTC with a prediction that is uniform within 50 % of the real length."""

    def _predict(self, request: Request) -> float:
        return request.sampling.max_tokens * random.Random(int(request.id)).uniform(0.5, 1.5)
