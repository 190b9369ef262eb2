"""What takes the place of engines where manifests are played."""

import copy
import json
from typing import Any

from tests.system.deploy.forms import Manifest, config_maps, pod_templates

# The differences: no GPU computes, and answers are known beforehand.
FAKE = {"ENGINE": "fake:0.2", "VLLM_ARGS": ""}


def with_stand_ins(manifests: list[Manifest]) -> list[Manifest]:
    """The fake engine in workers; in sidecars that of tests/fakes/served_engine, told what `vllm serve` is told."""
    played = copy.deepcopy(manifests)
    for settings in config_maps(played).values():
        if "FAIRLEAD_WORKER_MODEL" in settings:
            settings |= {f"FAIRLEAD_WORKER_{name}": value for name, value in FAKE.items()}
    for template in [template for manifest in played for template in pod_templates(manifest)]:
        for engine in template["spec"].get("initContainers", []):
            engine |= {"command": ["python", "-m", "tests.fakes.served_engine"], "args": _told(engine)}
    return played


def _told(engine: dict[str, Any]) -> list[str]:
    told = dict(argument.removeprefix("--").split("=", 1) for argument in engine["args"])
    events = json.loads(told["kv-events-config"])
    options = {
        "port": told["port"],
        "events": events["endpoint"],
        "replay": events["replay_endpoint"],
        "max-num-seqs": told["max-num-seqs"],
        "budget": told["max-num-batched-tokens"],
        "model": engine["command"][-1],
        "blocks": "4096",
        "step-seconds": "0.2",
    }
    return [f"--{name}={value}" for name, value in options.items()]
