"""The example configuration of deploy/envoy with other addresses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

EXAMPLE = Path(__file__).parent / "envoy.yaml"


def envoy_configuration(*, listen: str, engines: Sequence[str], picker: str, limiter: str) -> dict[str, Any]:
    """Return the configuration of an Envoy at `listen` without an admin port; every address is ip:port."""
    config: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    del config["admin"]
    resources = config["static_resources"]
    [listener] = resources["listeners"]
    listener["address"] = _address(listen)
    members = {"engines": engines, "picker": [picker], "limiter": [limiter]}
    for cluster in resources["clusters"]:
        endpoints = [{"endpoint": {"address": _address(each)}} for each in members[cluster["name"]]]
        cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": endpoints}]
    return config


def _address(text: str) -> dict[str, Any]:
    host, _, port = text.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}
