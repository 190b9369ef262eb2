"""`python -m tests.deploy.rehearsal MANIFESTS FOLDER`: what an operator does to a cluster in a week, in a minute.

To be run in user, mount, network and process namespaces of its own. Prints a report as JSON.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.forms import Manifest
from tests.deploy.rehearsal.cluster import Cluster
from tests.deploy.rehearsal.pod import Pod
from tests.deploy.rehearsal.traffic import Traffic

API_KEY = "evaluation-only"
USERS = 6


async def rehearse(manifests: list[Manifest], folder: Path) -> dict[str, Any]:
    """Start, serve, roll, scale, break, stop."""
    cluster = Cluster(manifests, folder)
    await cluster.start()
    traffic = Traffic("fairlead-gateway:7000", API_KEY, USERS)
    await traffic.start()
    for name, act in _acts(cluster).items():
        traffic.during = name
        await act()
        await traffic.next_answer()
    await traffic.stop()
    await cluster.stop()
    return {
        "completed": traffic.completed,
        "failures": traffic.failures,
        "restarts": {pod.name: pod.restarts for w in cluster.workloads.values() for pod in w.ended if pod.restarts},
        "ends": {pod.name: pod.end for workload in cluster.workloads.values() for pod in workload.ended},
        "pods": sum(len(workload.ended) for workload in cluster.workloads.values()),
    }


def _acts(cluster: Cluster) -> dict[str, Callable[[], Awaitable[Any]]]:
    gateway, scheduler, worker = (cluster.workloads[f"fairlead-{name}"] for name in ("gateway", "scheduler", "worker"))

    async def kill(pod: Pod) -> None:
        pod.kill()
        await pod.restarted()

    return {
        "rolling the workers": worker.roll,
        "rolling the gateway": gateway.roll,
        "scaling up": lambda: asyncio.gather(worker.scale(3), gateway.scale(2)),
        "killing a worker": lambda: kill(worker.pods[0]),
        "scaling down": lambda: asyncio.gather(worker.scale(2), gateway.scale(1)),
        "killing a scheduler": lambda: kill(scheduler.pods[0]),
        "rolling the schedulers": scheduler.roll,
    }


def main(manifests: Path, folder: Path) -> None:
    """Print the report."""
    documents = list(yaml.safe_load_all(manifests.read_text()))
    print(json.dumps(asyncio.run(rehearse(documents, folder))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
