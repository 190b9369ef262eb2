"""Longest prefix match (DLPM section 4.1, as in SGLang): the most cached prompt first.

Unit of fairness: none. Best locality, and a client without cached prefixes can starve. No bound.
"""

from local_worker.core.policies.fcfs import Fcfs
from local_worker.core.policies.protocol import StepBudget
from local_worker.core.request import Request


class Lpm(Fcfs):
    """FCFS's queue, admitted in order of matched length, ties by arrival; what does not fit is passed over."""

    def select(self, budget: StepBudget) -> list[Request]:
        """See QueuePolicy."""
        order = sorted(self._queue, key=lambda request: (-budget.matched_tokens(request), request.arrival))
        admitted = [request for request in order if budget.admit(request) is not None]
        for request in admitted:
            del self._queue[request]
        return admitted
