"""The second day of a release of the chart: what Helm made of each command, under traffic."""

from typing import Any

from tests.system.deploy.forms import Manifest
from tests.system.deploy.rehearsal.cluster import Cluster
from tests.system.deploy.rehearsal.traffic import Traffic

GATEWAY = "fairlead-gateway:7000"


async def rehearse_upgrades(cluster: Cluster, forms: dict[str, list[Manifest]]) -> dict[str, Any]:
    """Apply the objects after each command in its turn; forms are named NUMBER-COMMAND.

    After a failed upgrade a worker is added, as an autoscaler would: it starts with what is there then.
    """
    [first, *commands] = sorted(name for name in forms if name != "secrets")
    await cluster.apply([*forms["secrets"], *forms[first]])
    traffic = Traffic(GATEWAY)
    await traffic.start()
    workers = {first: _workers(cluster)}
    for command in commands:
        await traffic.through(command, _follow(cluster, forms[command]))
        if "failed" in command:
            await traffic.through("a worker more", cluster.workloads["fairlead-old"].scale(3))
        workers[command] = _workers(cluster)
    await traffic.stop()
    await cluster.stop()
    return {
        "completed": traffic.completed,
        "failures": traffic.failures,
        "workers": workers,
        **cluster.ends(),
    }


async def _follow(cluster: Cluster, manifests: list[Manifest]) -> None:
    """Apply, and end the workloads that are not there any more."""
    await cluster.apply(manifests)
    for name in cluster.workloads.keys() - {manifest["metadata"]["name"] for manifest in manifests}:
        await cluster.delete(name)


def _workers(cluster: Cluster) -> dict[str, int]:
    """The number of workers of each pool."""
    pools = {"fairlead-old", "fairlead-new"}
    return {name: len(workload.pods) for name, workload in cluster.workloads.items() if name in pools}
