"""Policies that only the reproduction needs: measured systems where they differ from the offered baselines."""

from global_scheduler.core.policies import Candidates
from global_scheduler.core.policies.base import RouteRequest
from local_worker.core.policies.fcfs import Fcfs
from local_worker.core.policies.protocol import StepBudget
from local_worker.core.request import Request
from simulation.baselines import Lpm, Preble

MOST_SORTED = 128


class SglangLpm(Lpm):
    """LPM as in SGLang: first come, first served while more than 128 requests wait, because sorting would take too
    long."""

    def select(self, budget: StepBudget) -> list[Request]:
        """See QueuePolicy."""
        return super().select(budget) if self.waiting <= MOST_SORTED else Fcfs.select(self, budget)


class PrebleFixed(Preble):
    """Preble as the DLPM paper describes it (section 7.1): it always follows a match above one half."""

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """See Policy."""
        explores = 2 * choice.longest_tokens <= request.prompt_tokens
        return choice.queues.least(choice.candidates if explores else choice.longest)
