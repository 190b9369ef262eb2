"""`python docs/chart_settings.py`: writes the names of the services' options into the schema of the chart's values."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine_adapter.config import AdapterConfig
from gateway.config import GatewayConfig
from global_scheduler.config import SchedulerConfig
from local_worker.config import WorkerConfig
from serving.config import options
from serving.environment import ServiceName

SCHEMA = Path(__file__).parents[1] / "deploy" / "helm" / "fairlead" / "values.schema.json"
# The services of the `settings` of the chart in the order in which the schema has them.
CONFIGS: Sequence[Mapping[ServiceName, type[Any]]] = (
    {ServiceName.GATEWAY: GatewayConfig},
    {ServiceName.SCHEDULER: SchedulerConfig},
    {ServiceName.WORKER: WorkerConfig, ServiceName.ADAPTER: AdapterConfig},
)
NAMES = re.compile(r'(?<="propertyNames": \{"enum": )(?:"[A-Z]+"|\[[^\]]*\])(?=\}\})')


def with_names(schema: str) -> str:
    """Return the text of the schema with the names of all options that a ConfigMap can set."""
    names = (json.dumps(_names(configs)) for configs in CONFIGS)
    text, count = NAMES.subn(lambda _: next(names), schema)
    if count != len(CONFIGS):
        raise ValueError(f"{SCHEMA.name} has {count} places for names of options, not {len(CONFIGS)}")
    return text


def _names(configs: Mapping[ServiceName, type[Any]]) -> list[str]:
    """Return the names of the services' options."""
    return sorted({field.name.upper() for config in configs.values() for field in options(config)})


if __name__ == "__main__":
    SCHEMA.write_text(with_names(SCHEMA.read_text()))
