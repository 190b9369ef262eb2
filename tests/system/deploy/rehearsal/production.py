"""What an operator does in a week to a cluster with everything on."""

import asyncio
import json
import os
import ssl
import urllib.request
from typing import Any

import grpc

from fairlead import Client
from tests.system.deploy.forms import Manifest
from tests.system.deploy.rehearsal.attachments import attached
from tests.system.deploy.rehearsal.cluster import Cluster
from tests.system.deploy.rehearsal.pod import Pod
from tests.system.deploy.rehearsal.traffic import API_KEY, Traffic

MODEL = "smollm2-135m-instruct"
GATEWAY = "https://fairlead-gateway:7000"
HTTP = "https://fairlead-gateway:8000/v1/completions"
# What a roll leaves behind shows late: gRPC by itself looks a name up again only after 30 s.
AFTERMATH_SECONDS = 40


async def rehearse_production(cluster: Cluster, forms: dict[str, list[Manifest]]) -> dict[str, Any]:
    """Start, serve, scale, break, upgrade, stop. Users call the model of the pool that is scaled."""
    manifests = forms["production"]
    await cluster.apply([*forms["secrets"], *manifests])
    answers, completions = await _call_each_model()
    pods = [pod for name, workload in cluster.workloads.items() if name != "fairlead-redis" for pod in workload.pods]
    scraped = await asyncio.gather(*(asyncio.to_thread(_scrape, pod.address) for pod in pods))
    connections = await cluster.connections()
    secrets = cluster.secrets["fairlead-cluster"]
    gateway, scheduler, worker = (cluster.workloads[f"fairlead-{name}"] for name in ("gateway", "scheduler", "worker"))
    traffic = Traffic(GATEWAY, MODEL)
    await traffic.start()
    await traffic.through("scaling up", asyncio.gather(worker.scale(3), gateway.scale(3)))
    await traffic.through("killing a worker", _kill(worker.pods[0]))
    await traffic.through("scaling down", asyncio.gather(worker.scale(2), gateway.scale(2)))
    await traffic.through("killing a scheduler", _kill(scheduler.pods[0]))
    old = secrets.pop("FAIRLEAD_ACCEPTED_SECRET")
    await traffic.through("restarting everything, forgetting the old secret", cluster.restart(manifests))
    workers = await asyncio.gather(*(attached(pod, secrets["FAIRLEAD_SECRET"]) for pod in scheduler.pods))
    refusal = await _refusal(scheduler.pods[0], old)
    await traffic.through("the aftermath", asyncio.sleep(AFTERMATH_SECONDS))
    await traffic.stop()
    await cluster.stop()
    return {
        "answers": answers,
        "completions": completions,
        "scraped": dict(zip([pod.name for pod in pods], scraped, strict=True)),
        "connections": connections,
        "completed": traffic.completed,
        "failures": traffic.failures,
        "attached": workers,
        "old_secret": refusal,
        **cluster.ends(),
    }


async def _call_each_model() -> tuple[dict[str, Any], dict[str, str]]:
    """What each model answers over gRPC and over HTTP, both with TLS."""
    answers, completions = {}, {}
    async with Client(GATEWAY, api_key=API_KEY) as client:
        for name in [model.name for model in await client.models()]:
            answer = await client.generate("hello", model=name, max_tokens=5, ignore_eos=True)
            answers[name] = {"text": answer.text, "worker": answer.worker}
            completions[name] = await asyncio.to_thread(_complete, name)
    return answers, completions


async def _kill(pod: Pod) -> None:
    pod.kill()
    await pod.restarted()


async def _refusal(scheduler: Pod, secret: str) -> str:
    """The status with which the scheduler answers to the secret."""
    try:
        return str(await attached(scheduler, secret))
    except grpc.aio.AioRpcError as error:
        return error.code().name


def _complete(model: str) -> str:
    """The text of a short completion by the model, from a server whose authority gRPC knows."""
    headers = {"authorization": f"Bearer {API_KEY}", "content-type": "application/json"}
    body = json.dumps({"model": model, "prompt": "hello", "max_tokens": 5}).encode()
    context = ssl.create_default_context(cafile=os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"])
    with urllib.request.urlopen(urllib.request.Request(HTTP, body, headers), timeout=60, context=context) as response:
        text: str = json.load(response)["choices"][0]["text"]
    return text


def _scrape(address: str) -> int:
    """How many of our samples there are."""
    with urllib.request.urlopen(f"http://{address}:9464/metrics", timeout=60) as response:
        return sum(line.startswith(b"fairlead_") for line in response)
