"""`python -m tests.deploy.rehearsal week|start MANIFESTS FOLDER`: what an operator does to a cluster in a week, in a
minute, or its first start alone.

To be run in user, mount, network and process namespaces of its own. Prints a report as JSON.
"""

import asyncio
import json
import os
import ssl
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import yaml

from fairlead import Client
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from serving.rpc.channel import open_channel, secret_metadata
from tests.deploy.rehearsal.cluster import Cluster
from tests.deploy.rehearsal.pod import Pod
from tests.deploy.rehearsal.traffic import Traffic

API_KEY = "evaluation-only"
NEXT_SECRET = "the-next-secret-of-the-rehearsal"
USERS = 4
# What a roll leaves behind shows late: gRPC by itself looks a name up again only after 30 s.
AFTERMATH_SECONDS = 40
README = Path(__file__).parents[3] / "deploy/README.md"


async def week(cluster: Cluster) -> dict[str, Any]:
    """Start, serve, roll, scale, break, stop."""
    await cluster.start()
    first_calls, first_secret = await quick_start(cluster), _cluster_secret(cluster)["FAIRLEAD_SECRET"]
    await cluster.workloads["fairlead-worker"].scale(2)
    traffic = Traffic("fairlead-gateway:7000", API_KEY, USERS)
    await traffic.start()
    for name, act in _acts(cluster).items():
        traffic.during = name
        await act()
        await traffic.next_answer()
    schedulers = cluster.workloads["fairlead-scheduler"].pods
    attached = await asyncio.gather(*(_attached(scheduler, NEXT_SECRET) for scheduler in schedulers))
    try:
        refusal = str(await _attached(schedulers[0], first_secret))
    except grpc.aio.AioRpcError as error:
        refusal = error.code().name
    traffic.during = "the aftermath"
    await asyncio.sleep(AFTERMATH_SECONDS)
    await traffic.next_answer()
    await traffic.stop()
    await cluster.stop()
    return {
        "first_calls": first_calls,
        "completed": traffic.completed,
        "failures": traffic.failures,
        "attached": attached,
        "first_secret": refusal,
        **_ends(cluster),
    }


async def quick_start(cluster: Cluster) -> list[str]:
    """Run the calls of deploy/README.md where port forwarding leads to, on the gateway's own loopback.

    Returns what each prints, and the operators' page.
    """
    block = README.read_text().partition("In another terminal")[2].partition("```sh\n")[2].partition("```")[0]
    commands = [*block.replace("\\\n", "").splitlines(), "curl -s http://127.0.0.1:7080"]
    gateway = cluster.workloads["fairlead-gateway"].pods[0]
    return [await gateway.run(command) for command in commands]


async def start(cluster: Cluster) -> dict[str, Any]:
    """Start, call each model by gRPC and by HTTP over TLS, read every service's metrics, stop."""
    await cluster.start()
    url, answers, completions = "https://fairlead-gateway:8000/v1/completions", {}, {}
    async with Client("https://fairlead-gateway:7000", api_key=API_KEY) as client:
        for name in [model.name for model in await client.models()]:
            answer = await client.generate("hello", model=name, max_tokens=5, ignore_eos=True)
            answers[name] = {"text": answer.text, "worker": answer.worker}
            completions[name] = await asyncio.to_thread(_complete, url, name)
    pods = [pod for name, workload in cluster.workloads.items() if name != "fairlead-redis" for pod in workload.pods]
    scraped = await asyncio.gather(*(asyncio.to_thread(_scrape, pod.address) for pod in pods))
    await cluster.stop()
    return {
        "answers": answers,
        "completions": completions,
        "scraped": dict(zip([pod.name for pod in pods], scraped, strict=True)),
        **_ends(cluster),
    }


def _cluster_secret(cluster: Cluster) -> dict[str, str]:
    """The Secret that all services take, by key."""
    [keys] = [keys for keys in cluster.secrets.values() if "FAIRLEAD_SECRET" in keys]
    return keys


async def _attached(scheduler: Pod, secret: str) -> list[str]:
    """The workers that the scheduler knows now."""
    async with open_channel(f"{scheduler.address}:7050") as channel:
        watch = scheduler_pb2_grpc.SchedulerStub(channel).Watch(
            scheduler_pb2.WatchRequest(), metadata=secret_metadata(secret)
        )
        return [member.worker for member in (await anext(aiter(watch))).members]


def _complete(url: str, model: str) -> str:
    """The text of a short completion by the model, from a server whose authority gRPC knows."""
    headers = {"authorization": f"Bearer {API_KEY}", "content-type": "application/json"}
    request = urllib.request.Request(
        url, json.dumps({"model": model, "prompt": "hello", "max_tokens": 5}).encode(), headers
    )
    context = ssl.create_default_context(cafile=os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"])
    with urllib.request.urlopen(request, timeout=60, context=context) as response:
        text: str = json.load(response)["choices"][0]["text"]
    return text


def _scrape(address: str) -> int:
    """How many of our samples there are."""
    with urllib.request.urlopen(f"http://{address}:9464/metrics", timeout=10) as response:
        return sum(line.startswith(b"fairlead_") for line in response)


def _ends(cluster: Cluster) -> dict[str, Any]:
    pods = [pod for workload in cluster.workloads.values() for pod in workload.ended]
    return {
        "restarts": {pod.name: pod.restarts for pod in pods if pod.restarts},
        "ends": {pod.name: pod.end for pod in pods},
    }


def _acts(cluster: Cluster) -> dict[str, Callable[[], Awaitable[Any]]]:
    gateway, scheduler, worker = (cluster.workloads[f"fairlead-{name}"] for name in ("gateway", "scheduler", "worker"))

    async def kill(pod: Pod) -> None:
        pod.kill()
        await pod.restarted()

    keys = _cluster_secret(cluster)
    old = keys["FAIRLEAD_SECRET"]

    async def replace(**secrets: str) -> None:
        """Change the Secret and restart every pod (docs/operations.md)."""
        keys.clear()
        keys.update({f"FAIRLEAD_{name}": secret for name, secret in secrets.items()})
        await asyncio.gather(*(workload.roll() for workload in cluster.workloads.values()))

    return {
        "rolling the workers": worker.roll,
        "rolling the gateway": gateway.roll,
        "scaling up": lambda: asyncio.gather(worker.scale(3), gateway.scale(2)),
        "killing a worker": lambda: kill(worker.pods[0]),
        "scaling down": lambda: asyncio.gather(worker.scale(2), gateway.scale(1)),
        "killing a scheduler": lambda: kill(scheduler.pods[0]),
        # Everything at once, as after a change of the Secret.
        "accepting the next secret": lambda: replace(SECRET=old, ACCEPTED_SECRET=NEXT_SECRET),
        "using the next secret": lambda: replace(SECRET=NEXT_SECRET, ACCEPTED_SECRET=old),
        "forgetting the old secret": lambda: replace(SECRET=NEXT_SECRET),
    }


def main(scenario: str, manifests: Path, folder: Path) -> None:
    """Print the report."""
    documents = list(yaml.safe_load_all(manifests.read_text()))

    async def rehearse() -> dict[str, Any]:
        return await {"week": week, "start": start}[scenario](Cluster(documents, folder))

    print(json.dumps(asyncio.run(rehearse())))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
