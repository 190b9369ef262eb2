"""What a kubelet makes of a container's description: its environment and its command line."""

import re
from collections.abc import Mapping
from typing import Any

from tests.system.deploy.forms import Manifest


def environment(
    container: Manifest,
    config_maps: Mapping[str, Mapping[str, str]],
    secrets: Mapping[str, Mapping[str, str]],
    fields: Mapping[str, str],
) -> dict[str, str]:
    """The container's variables. Raises KeyError for what is missing.

    `secrets` and `config_maps` by name and key; `fields` of the pod by path.
    """
    values: dict[str, str] = {}
    for source in container.get("envFrom", []):
        values |= config_maps[source["configMapRef"]["name"]]
    for entry in container.get("env", []):
        value = entry["value"] if "value" in entry else _value(entry["valueFrom"], container, secrets, fields)
        if value is not None:
            values[entry["name"]] = expand(value, values)
    return values


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` replaced, as in commands, arguments and values; unknown names stay as they are."""
    return re.sub(r"\$\((\w+)\)", lambda match: values.get(match[1], match[0]), text)


def command_line(container: Manifest, values: Mapping[str, str]) -> list[str]:
    """Command and arguments, expanded."""
    return [expand(text, values) for text in [*container["command"], *container.get("args", [])]]


def _value(
    source: dict[str, Any], container: Manifest, secrets: Mapping[str, Mapping[str, str]], fields: Mapping[str, str]
) -> str | None:
    match source:
        case {"secretKeyRef": {"name": name, "key": key, "optional": True}}:
            return secrets.get(name, {}).get(key)
        case {"secretKeyRef": {"name": name, "key": key}}:
            return secrets[name][key]
        case {"fieldRef": {"fieldPath": path}}:
            return fields[path]
        case {"resourceFieldRef": {"resource": "limits.cpu"}}:
            return str(container["resources"]["limits"]["cpu"])
    raise KeyError(f"a source this kubelet does not know: {source}")
