"""The configuration of deploy/envoy, for tests: with their ports, and with subsets that callers name."""

from pathlib import Path
from typing import Any

import yaml

EXAMPLE = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
LISTEN, ADMIN, PICKER, FIRST, SECOND = 8080, 9901, 9002, 8001, 8002
LISTENER = "http"  # its name


def example(picker: int, engines: list[int]) -> dict[str, Any]:
    """The example with the ports of a picker and of two engines; the header x-subset limits the choice."""
    ports = {LISTEN: 0, ADMIN: 0, PICKER: picker, FIRST: engines[0], SECOND: engines[1]}
    config: dict[str, Any] = _with_ports(yaml.safe_load(EXAMPLE.read_text()), ports)
    (listener,) = config["static_resources"]["listeners"]
    filters = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    key = {"metadata_namespace": "envoy.lb.subset_hint", "key": "x-gateway-destination-endpoint-subset"}
    typed = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
        "request_rules": [{"header": "x-subset", "on_header_present": key}],
    }
    filters.insert(0, {"name": "envoy.filters.http.header_to_metadata", "typed_config": typed})
    return config


def _with_ports(value: Any, ports: dict[int, int]) -> Any:
    """`value` with other ports."""
    if isinstance(value, dict):
        return {key: _with_ports(each, ports) if key != "port_value" else ports[each] for key, each in value.items()}
    return [_with_ports(each, ports) for each in value] if isinstance(value, list) else value
