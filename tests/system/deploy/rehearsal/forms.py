"""Each form after another in one cluster, with users calling while one takes the place of another."""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.system.deploy.forms import Manifest
from tests.system.deploy.rehearsal.cluster import Cluster
from tests.system.deploy.rehearsal.traffic import Traffic

WORKER = "fairlead-worker"
GATEWAY = "fairlead-gateway:7000"
NEXT_SECRET = "the-next-secret-of-the-rehearsal"
README = Path(__file__).parents[4] / "deploy/README.md"


async def rehearse_forms(cluster: Cluster, forms: dict[str, list[Manifest]]) -> dict[str, Any]:
    """Change from form to form; where all pods are restarted, replace the cluster secret too (docs/operations.md).

    Where a StatefulSet has to be deleted first (deploy/README.md), or another model is served, users wait until the
    next form is ready.
    """
    await cluster.apply(forms["evaluation"])
    first_calls = await _quick_start(cluster)
    [first] = [keys["FAIRLEAD_SECRET"] for keys in cluster.secrets.values() if "FAIRLEAD_SECRET" in keys]
    [cluster.secrets["fairlead-keys"]] = [keys for keys in cluster.secrets.values() if "keys.yaml" in keys]
    await cluster.workloads[WORKER].scale(2)
    sessions = [traffic := await _traffic()]
    cluster.secrets["fairlead-cluster"] = {"FAIRLEAD_SECRET": first, "FAIRLEAD_ACCEPTED_SECRET": NEXT_SECRET}
    await traffic.through("from evaluation to cpu, accepting the next secret", cluster.apply(forms["cpu"]))
    await _scale_down(cluster, traffic, "cpu")

    sessions.append(traffic := await _follow(cluster, forms["gpu"]))
    cluster.secrets["fairlead-cluster"] = {"FAIRLEAD_SECRET": NEXT_SECRET, "FAIRLEAD_ACCEPTED_SECRET": first}
    await traffic.through("from gpu to vllm, using the next secret", cluster.restart(forms["vllm"]))
    await _scale_down(cluster, traffic, "vllm")
    for form in ("vllm-tensor-parallel", "adapter"):
        sessions.append(traffic := await _follow(cluster, forms[form]))
        await _scale_down(cluster, traffic, form)
    await cluster.stop()
    return {
        "first_calls": first_calls,
        "completed": sum((traffic.completed for traffic in sessions), Counter()),
        "failures": [failure for traffic in sessions for failure in traffic.failures],
        **cluster.ends(),
    }


async def _follow(cluster: Cluster, form: list[Manifest]) -> Traffic:
    """Replace the workers by those of another form, and let users begin again."""
    await cluster.delete(WORKER)
    await cluster.apply(form)
    await cluster.workloads[WORKER].scale(2)
    return await _traffic()


async def _traffic() -> Traffic:
    traffic = Traffic(GATEWAY)
    await traffic.start()
    return traffic


async def _scale_down(cluster: Cluster, traffic: Traffic, form: str) -> None:
    await traffic.through(f"scaling {form} down", cluster.workloads[WORKER].scale(1))
    await traffic.stop()


async def _quick_start(cluster: Cluster) -> list[str]:
    """Run the calls of deploy/README.md where port forwarding leads to, on the gateway's own loopback.

    Returns what each prints, and the operators' page.
    """
    block = README.read_text().partition("In another terminal")[2].partition("```sh\n")[2].partition("```")[0]
    commands = [*block.replace("\\\n", "").splitlines(), "curl -s http://127.0.0.1:7080"]
    gateway = cluster.workloads["fairlead-gateway"].pods[0]
    return [await gateway.run(command) for command in commands]
