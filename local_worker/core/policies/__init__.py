"""The queue policies by the names used in the configuration: those with a bound, and `fcfs`, the usual baseline.

`fairlead demo` runs `fcfs` and `vtc` as the systems that DLPM is compared with. Policies of the literature without a
bound are in simulation.baselines.
"""

from collections.abc import Callable

from local_worker.core.policies.dlpm import Dlpm
from local_worker.core.policies.drr import Drr
from local_worker.core.policies.fcfs import Fcfs
from local_worker.core.policies.protocol import QueuePolicy, QueuePolicyConfig, StepBudget
from local_worker.core.policies.vtc import Vtc

POLICIES: dict[str, Callable[[QueuePolicyConfig], QueuePolicy]] = {
    "dlpm": Dlpm,
    "drr": Drr,
    "fcfs": Fcfs,
    "vtc": Vtc,
}

__all__ = ["POLICIES", "QueuePolicy", "QueuePolicyConfig", "StepBudget"]
