"""A folder with a model of random weights and a tokenizer, from which a worker loads it as any other."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lab.bench.flood.workload import WORDS
from lab.bench.shapes import random_model


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
