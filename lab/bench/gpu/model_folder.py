"""A folder with a model of random weights and a tokenizer, from which a worker loads it as any other."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lab.bench.flood.workload import WORDS
from lab.bench.gpu.subject import Subject
from lab.bench.shapes import random_model

MEMORY = Path("/dev/shm")  # a file system in memory, where there is one
MODEL = "model"


@contextmanager
def written_model(subject: Subject) -> Iterator[Path]:
    """Give the folder of a model with the shape of the subject's, which ends with the context."""
    size = 2 * subject.work(()).bytes_read
    place = MEMORY if MEMORY.exists() and shutil.disk_usage(MEMORY).free > size else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        model = Path(folder) / MODEL
        write_model(model, subject.scale.shape, subject.device, subject.dtype)
        subject.release()
        yield model


def write_model(folder: Path, shape: str, device: str, dtype: torch.dtype) -> None:
    """Write a random model of a shape (lab.bench.shapes), and a tokenizer with a word for each of its tokens."""
    model = random_model(shape, device, dtype)
    model.save_pretrained(folder)
    others = (f"w{token}" for token in range(len(WORDS), model.config.vocab_size))
    words = {word: token for token, word in enumerate([*WORDS, *others])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=f"w{len(WORDS)}"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)  # type: ignore[no-untyped-call]
    fast.save_pretrained(folder)
