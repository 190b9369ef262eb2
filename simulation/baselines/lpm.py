"""Longest prefix match (DLPM section 4.1, as in SGLang): the request with the most cached prompt tokens goes first.

Unit of fairness: none. Locality is best, but a client without cached prefixes can starve. Bound: none.
"""

from local_worker.core.policies.fcfs import Fcfs
from local_worker.core.policies.protocol import StepBudget
from local_worker.core.request import Request


class Lpm(Fcfs):
    """The queue of FCFS, admitted by length of the match, ties by arrival; requests that do not fit are skipped."""

    def select(self, budget: StepBudget) -> list[Request]:
        """See QueuePolicy."""
        order = sorted(self._queue, key=lambda request: (-budget.matched_tokens(request), request.arrival))
        admitted = [request for request in order if budget.admit(request) is not None]
        for request in admitted:
            del self._queue[request]
        return admitted
