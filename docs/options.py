"""`python docs/options.py`: writes docs/options.md from the services' configuration classes."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

from endpoint_picker.config import PickerConfig
from engine_adapter.config import AdapterConfig
from gateway.config import GatewayConfig
from global_scheduler.config import SchedulerConfig
from local_worker.config import WorkerConfig
from serving.environment import PREFIX, SHARED, ServiceName, variable
from serving.flags import flag
from throttler.config import ThrottlerConfig

ROOT = Path(__file__).parents[1]
HEAD = """# Options

Generated from the code by `python docs/options.py`; do not edit. An option is set by flag, by variable or in a file;
[operations.md](operations.md#configuration) says which of them wins. `fairlead up --worker-arg=--max-running=8` passes
a flag on to its workers, and so do `--gateway-arg` and `--scheduler-arg`.

An option whose default is a dash is not set, or its default depends on the device; the text says what holds then. The
defaults do for most clusters; the last column names the situation in which an option has to be changed.
"""
SERVICES: dict[str, tuple[ServiceName, type[Any]]] = {
    "gateway": (ServiceName.GATEWAY, GatewayConfig),
    "global_scheduler": (ServiceName.SCHEDULER, SchedulerConfig),
    "endpoint_picker": (ServiceName.PICKER, PickerConfig),
    "local_worker": (ServiceName.WORKER, WorkerConfig),
    "engine_adapter": (ServiceName.ADAPTER, AdapterConfig),
    "throttler": (ServiceName.THROTTLER, ThrottlerConfig),
}


def reference() -> str:
    """Return the whole page."""
    lines = (line for module, (service, config) in SERVICES.items() for line in _service(module, service, config))
    return "\n".join([HEAD, *lines]).rstrip("\n") + "\n"


def _service(module: str, service: ServiceName, config: type[Any]) -> Iterator[str]:
    hints = get_type_hints(config)
    fields = dataclasses.fields(config)
    yield f"## `python -m {module}`\n"
    yield f"{len(fields)} options.\n"
    yield "| option | variable | default | unit or values | what it does | change it when |\n|---|---|---|---|---|---|"
    for field in fields:
        name = PREFIX + field.name.upper() if field.name in SHARED else variable(service, field.name)
        about = field.metadata
        cells = (f"`{flag(field.name)}`", f"`{name}`", _default(field.default), _values(field, hints[field.name]))
        yield "| " + " | ".join((*cells, about["help"], about["change_when"])) + " |"
    yield ""


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-" if value in ("", None) else f"`{value}`"


def _values(field: dataclasses.Field[Any], hint: Any) -> str:
    kind = get_args(hint)[0] if get_args(hint) else hint
    choices = ", ".join(f"`{choice}`" for choice in field.metadata["choices"])
    return choices or field.metadata["unit"] or ("on or off" if kind is bool else "")


if __name__ == "__main__":
    (ROOT / "docs" / "options.md").write_text(reference())
