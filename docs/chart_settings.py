"""`python docs/chart_settings.py`: writes the names of the services' options into the schema of the chart's values."""

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from engine_adapter.config import AdapterConfig
from gateway.config import GatewayConfig
from global_scheduler.config import SchedulerConfig
from local_worker.config import WorkerConfig

SCHEMA = Path(__file__).parents[1] / "deploy" / "helm" / "fairlead" / "values.schema.json"
# The `settings` of the chart in the order in which the schema has them.
CONFIGS: Sequence[tuple[type[Any], ...]] = ((GatewayConfig,), (SchedulerConfig,), (WorkerConfig, AdapterConfig))
NAMES = re.compile(r'(?<="propertyNames": \{"enum": )(?:"[A-Z]+"|\[[^\]]*\])(?=\}\})')


def with_names(schema: str) -> str:
    """Return the text of the schema with the names of all options that a ConfigMap can set."""
    names = (json.dumps(_names(configs)) for configs in CONFIGS)
    text, count = NAMES.subn(lambda _: next(names), schema)
    if count != len(CONFIGS):
        raise ValueError(f"{SCHEMA.name} has {count} places for names of options, not {len(CONFIGS)}")
    return text


def _names(configs: Sequence[type[Any]]) -> list[str]:
    return sorted({field.name.upper() for config in configs for field in fields(config)})


if __name__ == "__main__":
    SCHEMA.write_text(with_names(SCHEMA.read_text()))
