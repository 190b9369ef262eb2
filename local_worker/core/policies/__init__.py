"""The queue policies by the names used in the configuration: the fair ones of the three papers, and `fcfs`.

`fairlead demo` runs `fcfs` and `vtc` as the systems that DLPM is compared with. Baselines that are not fair are in
simulation.baselines.
"""

from collections.abc import Callable

from local_worker.core.policies.dlpm import Dlpm
from local_worker.core.policies.drr import Drr
from local_worker.core.policies.fcfs import Fcfs
from local_worker.core.policies.protocol import ClassedPolicy, QueuePolicy, QueuePolicyConfig, StepBudget
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.policies.sliced_vtc import SlicedVtc
from local_worker.core.policies.vtc import Vtc
from local_worker.core.policies.vtc_predict import VtcPredict
from local_worker.core.policies.wsc import Wsc

POLICIES: dict[str, Callable[[QueuePolicyConfig], QueuePolicy]] = {
    "dlpm": SlicedDlpm,
    "drr": Drr,
    "fcfs": Fcfs,
    "vtc": SlicedVtc,
    "vtc-predict": VtcPredict,
    "wsc": Wsc,
}

# For engines that schedule by themselves, which compute whole requests, and for the papers' systems.
WHOLE_POLICIES: dict[str, Callable[[QueuePolicyConfig], QueuePolicy]] = {**POLICIES, "dlpm": Dlpm, "vtc": Vtc}

__all__ = ["POLICIES", "WHOLE_POLICIES", "ClassedPolicy", "QueuePolicy", "QueuePolicyConfig", "StepBudget"]
