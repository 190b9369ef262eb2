"""What has to be settled before vLLM is imported: its environment variables, and the operator's arguments."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from serving.config import ConfigError, require

# Variables that are already set keep their values; the one that chooses vLLM's model runner is set in any case.
DEFAULTS = {
    "VLLM_CONFIGURE_LOGGING": "0",  # records go to the worker's log
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one device needs no second process
    "VLLM_NO_USAGE_STATS": "1",  # nothing is reported to anybody
}
RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
RUNNERS = {"v1": "0", "v2": "1"}  # values of RUNNER; without it vLLM chooses V2 since 0.31 where it has Triton


def prepare(runner: str = "v1") -> None:
    """Set the environment variables of vLLM, for one of its model RUNNERS."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ[RUNNER] = RUNNERS[runner]
    if "OMP_NUM_THREADS" in os.environ:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"


def read_arguments(given: str) -> Mapping[str, Any]:
    """Return the arguments in a YAML file or a YAML mapping; raise ConfigError for anything else."""
    try:
        text = given if given.lstrip().startswith("{") or not given else Path(given).read_text("utf-8")
        arguments = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"vllm_args: {error}") from error
    if arguments is None:
        return {}
    require(
        isinstance(arguments, dict) and all(isinstance(name, str) for name in arguments),
        f"vllm_args: must be a mapping of names to values, got {arguments!r}",
    )
    return dict(arguments)
