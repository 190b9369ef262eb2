"""Values of the option `model`: the built-in model, a folder, or an id on the Hugging Face hub."""

import re
from pathlib import Path

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
BUILT_IN = "smollm2-135m-instruct"


def check(model: str) -> None:
    """Raise FileNotFoundError if `model` cannot be a model. Only the name and the folder's file names are checked."""
    folder = Path(model)
    if model == BUILT_IN:
        return
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"no config.json in {folder}")
        if not weights(folder):
            raise FileNotFoundError(f"no weights (*.safetensors or *.bin) in {folder}")
    elif not HUB_ID.fullmatch(model):
        raise FileNotFoundError(f"no folder, no hub id (organisation/name), and not the built-in model, {BUILT_IN}")


def weights(folder: Path) -> list[Path]:
    """Return the files with a model's weights, sorted by path."""
    return sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
