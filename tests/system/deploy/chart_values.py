"""Values of the chart: those with which it installs what a form of kustomize installs, and many at once."""

from typing import Any

from tests.system.deploy.chart import Values
from tests.system.deploy.forms import operators_secrets


def worker(**pool: Any) -> list[Values]:
    return [{"name": "worker", "model": "Qwen/Qwen3-8B", "gpus": 1, **pool}]


BUILT_IN = {"model": "smollm2-135m-instruct", "gpus": 0}
LONG_ANSWERS = {"drainSeconds": 300, "monitoring": True}
FORMS: dict[str, Values] = {
    "base": {},
    "overlays/cpu": {"monitoring": True},
    "overlays/gpu": {**LONG_ANSWERS, "pools": worker()},
    "overlays/vllm": {**LONG_ANSWERS, "pools": worker(engine="vllm")},
    "overlays/vllm-tensor-parallel": {
        **LONG_ANSWERS,
        "pools": worker(engine="vllm", model="Qwen/Qwen3-32B", gpus=4),
    },
    "overlays/vllm-two-nodes": {
        **LONG_ANSWERS,
        "pools": worker(engine="vllm", model="meta-llama/Llama-3.1-405B-Instruct-FP8", gpus=4, nodes=2),
    },
    "overlays/adapter": {**LONG_ANSWERS, "pools": worker(engine="adapter")},
    "overlays/production": {
        **LONG_ANSWERS,
        "tls": "fairlead-tls",
        "networkPolicy": True,
        "priority": True,
        "tracing": "http://otel-collector.observability:4317",
        "gateway": {"autoscaling": {"min": 2, "max": 10}},
        "pools": worker(**BUILT_IN, autoscaling={"min": 2, "max": 8}),
    },
}
COMPONENTS: dict[str, Values] = {
    "prometheus-operator": {"monitoring": True, "prometheusOperator": True},
    "http-route": {"httpRoute": {"host": "llm.example.com"}},
    "grpc-route": {"grpcRoute": {"host": "grpc.llm.example.com"}},
    "ingress": {"ingress": {"host": "llm.example.com"}},
}
POOLS: list[Values] = [
    {"name": "small", "model": "smollm2-135m-instruct", "replicas": 2},
    {"name": "own", "model": "/weights/own", "weights": {"claim": "own-weights"}, "settings": {"MAX_RUNNING": 16}},
    {
        "name": "large",
        "model": "/var/cache/fairlead/qwen",
        "engine": "vllm",
        "gpus": 4,
        "storageClass": "fast",
        "nodeSelector": {"gpu": "h100"},
        "settings": {"VLLM_ARGS": "{tensor_parallel_size: 2, pipeline_parallel_size: 2}"},
        "autoscaling": {"min": 1, "max": 4},
        "weights": {"download": {"image": "docker.io/library/busybox:1.37", "command": ["sh", "-c", "true"]}},
    },
    {
        "name": "beside",
        "model": "/weights/beside",
        "engine": "adapter",
        "gpus": 2,
        "settings": {"MAX_RUNNING": 64},
        "serve": {"image": "registry.test/vllm:1", "args": ["--served-model-name=beside"]},
        "weights": {"claim": "own-weights"},
        "priorityClassName": "low",
    },
    {
        "name": "wide",
        "model": "a/wide",
        "engine": "vllm",
        "gpus": 8,
        "nodes": 3,
        "settings": {"MAX_RUNNING": 64},
        "autoscaling": {"min": 1, "max": 2},
    },
]
GIVEN = operators_secrets("production") | {("PersistentVolumeClaim", "own-weights"), ("PriorityClass", "low")}
EVERYTHING: Values = {
    **FORMS["overlays/production"],
    **COMPONENTS["ingress"],
    **COMPONENTS["http-route"],
    "pools": POOLS,
}
