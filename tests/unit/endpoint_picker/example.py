"""The configuration of deploy/envoy, for tests: with their ports, without limits, with subsets that callers name."""

from typing import Any

from cli.envoy_configuration import envoy_configuration

LISTENER = "http"  # its name
LIMITS = "envoy.filters.http.ratelimit"


def example(pickers: list[int], engines: list[int]) -> dict[str, Any]:
    """The example with the ports of pickers and of two engines; the header x-subset limits the choice."""
    config = envoy_configuration(
        listen="127.0.0.1:0",
        engines=[f"127.0.0.1:{port}" for port in engines],
        picker=f"127.0.0.1:{pickers[0]}",
        limiter="127.0.0.1:1",
    )
    [cluster] = [each for each in config["static_resources"]["clusters"] if each["name"] == "picker"]
    addresses = [{"address": "127.0.0.1", "port_value": port} for port in pickers]
    hosts = [{"endpoint": {"address": {"socket_address": address}}} for address in addresses]
    cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": hosts}]
    manager = http_manager(config)
    key = {"metadata_namespace": "envoy.lb.subset_hint", "key": "x-gateway-destination-endpoint-subset"}
    typed = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
        "request_rules": [{"header": "x-subset", "on_header_present": key}],
    }
    subsets = {"name": "envoy.filters.http.header_to_metadata", "typed_config": typed}
    manager["http_filters"] = [subsets, *(each for each in manager["http_filters"] if each["name"] != LIMITS)]
    return config


def http_manager(config: dict[str, Any]) -> dict[str, Any]:
    """What the one listener of a configuration does with HTTP."""
    (listener,) = config["static_resources"]["listeners"]
    manager: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return manager
