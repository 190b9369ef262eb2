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
from serving.config import options
from serving.environment import SHARED, ServiceName
from serving.flags import flag
from throttler.config import ThrottlerConfig

ROOT = Path(__file__).parents[1]
HEAD = """# Options

Generated from the code by `python docs/options.py`; do not edit. {count} options of six services, those that most
clusters need first. [operations.md](operations.md#configuration) says how to set one: `--max-running 8` is also
`FAIRLEAD_WORKER_MAX_RUNNING=8` or `max_running: 8` in a file, and `fairlead up --worker-arg=--max-running=8`
passes it on, as do `--gateway-arg` and `--scheduler-arg`. Options in **bold** have a variable for all services, such as
`FAIRLEAD_SECRET`.

A dash means that an option is not set, or that its default depends on the device; the text says what holds then.
"""
# All options by how likely one needs them, and what a group is called.
ORDER: dict[str, str] = {
    "The six that matter": "secret model http_listen keys scheduler kv_tokens",
    "Where and with whom a service works": "listen advertise endpoints engine pickers redis name metrics page_listen "
    "tls insecure http_hosts health_listen internal_tls device log_level",
    "Limits and fairness": "profiles ledger throttle policy fairness_levels quantum_tokens "
    "preemption_quanta step_seconds cost cache_scope objectives overload_metrics domains",
    "Sizes": "max_running token_budget max_prompt_tokens block_tokens dtype admission kv_events vllm_args lora "
    "max_streams drain_seconds",
    "Seldom": "admin_secret accepted_secret proxy_secret response_store_mib",
}
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
    return "\n".join([HEAD.format(count=len(names())), *_groups()])


def names() -> set[str]:
    """Return the names of all options."""
    return {field.name for _, config in SERVICES.values() for field in options(config)}


def _groups() -> Iterator[str]:
    for title, listed in ORDER.items():
        yield f"## {title}\n"
        yield "| option | of | default | unit or values | what it does | change it when |\n|---|---|---|---|---|---|"
        for name in listed.split():
            yield from _rows(name)
        yield ""


def _rows(name: str) -> Iterator[str]:
    """Yield a row for each meaning that the option has."""
    meanings: dict[tuple[str, str, str, str], list[str]] = {}
    for service, config in SERVICES.values():
        hints = get_type_hints(config)
        for field in (field for field in options(config) if field.name == name):
            about = field.metadata
            cells = (
                _default(field.default),
                _values(field, hints[name]),
                str(about["help"]),
                str(about["change_when"]),
            )
            meanings.setdefault(cells, []).append(service.value.lower())
    shown = f"**`{flag(name)}`**" if name in SHARED else f"`{flag(name)}`"
    for cells, having in meanings.items():
        yield "| " + " | ".join((shown, "all" if len(having) == len(SERVICES) else ", ".join(having), *cells)) + " |"


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
