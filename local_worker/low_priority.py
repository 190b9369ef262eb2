"""Threads that leave the cores to others."""

import os
import sys
import threading


def lower_priority(niceness: int) -> None:
    """Add `niceness` to that of the calling thread, where threads have a priority of their own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)
