"""LoRA adapters of a model: folders in PEFT's format, or ids on the hub."""

import json
from dataclasses import dataclass
from pathlib import Path

from local_worker.engine.model_files import revision
from serving.config import ConfigError
from serving.model_name import HUB_ID, weights
from serving.process import log_step

CONFIG = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """An adapter that a model can compute with, under the `name` that requests give."""

    name: str
    folder: Path
    rank: int  # the largest of its layers
    revision: str  # of its files; the model's own revision is not in it


def find_adapter(name: str, place: str) -> LoraAdapter:
    """Return the adapter in the folder, or with the hub's id, `place`.

    Raises ConfigError, with the option and the adapter's name, if there is none or its configuration has no rank.
    """
    try:
        folder = _folder(place)
        missing = [CONFIG] if not (folder / CONFIG).is_file() else []
        missing += ["weights (*.safetensors or *.bin)"] if not weights(folder) else []
        if missing:
            raise FileNotFoundError(f"no {' and no '.join(missing)} in {folder}")
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        ranks = [config["r"], *(config.get("rank_pattern") or {}).values()]
        if not all(type(rank) is int and rank > 0 for rank in ranks):
            raise ValueError(f"ranks must be whole numbers above 0, got {ranks}")
        rank = max(ranks)
        return LoraAdapter(name, folder, rank, revision(folder, CONFIG))
    except OSError as error:
        raise ConfigError(f"lora: {name}: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"lora: {name}: {CONFIG} tells no rank: {type(error).__name__}: {error}") from error


def _folder(place: str) -> Path:
    if Path(place).is_dir():
        return Path(place)
    if not HUB_ID.fullmatch(place):
        raise FileNotFoundError(f"{place!r} is no folder and no hub id (organisation/name)")
    log_step("asking the hub for an adapter")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(place, allow_patterns=["adapter_*"]))
    except Exception as error:  # the errors of its HTTP library are not OSErrors
        raise FileNotFoundError(f"{place!r} is no folder, and not on the hub or in its cache ({error})") from error
