"""Queue policies by the name that configuration gives them."""

from collections.abc import Callable

from local_worker.core.policies.dlpm import Dlpm
from local_worker.core.policies.fcfs import Fcfs
from local_worker.core.policies.lpm import Lpm
from local_worker.core.policies.protocol import Gate, PolicyConfig, QueuePolicy
from local_worker.core.policies.vtc import Vtc

POLICIES: dict[str, Callable[[PolicyConfig], QueuePolicy]] = {"dlpm": Dlpm, "fcfs": Fcfs, "lpm": Lpm, "vtc": Vtc}

__all__ = ["POLICIES", "Gate", "PolicyConfig", "QueuePolicy"]
