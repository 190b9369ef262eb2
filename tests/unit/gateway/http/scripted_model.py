"""A model that says what its scripts say: the last word of a prompt names the script.

Each of its tokens follows from the one before it, so no piece of a script occurs twice. Nothing is forced: it is a
Llama of one layer whose attention and MLP add nothing, and whose head has the order of the pieces.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SHORTEST = 3  # characters of a piece
UNKNOWN, END = "<unk>", "<end>"
THOUGHTS = "<think>\nHm, rather wet.\n</think>\n\nIt rains."
# Writes tools, calls in the format of Hermes, and the names of functions before their results; knows reasoning.
TEMPLATE = """
{%- for tool in tools or [] %}tool {{ tool.function.name }}: {{ tool.function.parameters | tojson }}\n{% endfor %}
{%- for m in messages %}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% if m.role == "tool" %}{{ m.name }}|{% endif %}{{ m.content }}{% endfor %}
{#- </think> #}"""


def save_scripted_model(
    folder: Path,
    template: str,
    scripts: Mapping[str, str],
    response_template: Mapping[str, object] | None = None,
    special: Sequence[str] = (),
) -> None:
    """Write the model and its tokenizer to `folder`; `scripts` are texts by the words that name them.

    Special tokens are pieces of their own, each of which occurs once in all scripts.
    """
    used = [UNKNOWN, END, *special, *scripts]
    marks = f"({'|'.join(map(re.escape, special))})" if special else "$^"
    chains = [
        [word, *(piece for part in re.split(marks, text) for piece in _pieces(part, used, special)), END]
        for word, text in scripts.items()
    ]
    ids = {piece: index for index, piece in enumerate(used)}
    size = -(-len(used) // 64) * 64
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=size,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=size // 64,
        num_key_value_heads=size // 64,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.model.norm.weight.fill_(1.0)
        for before, after in (pair for chain in chains for pair in pairwise(chain)):
            model.lm_head.weight[ids[after], ids[before]] = 10.0
    model.save_pretrained(folder)
    backend = Backend(models.WordLevel({UNKNOWN: 0}, unk_token=UNKNOWN))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([END, *special])
    backend.add_tokens([AddedToken(piece, normalized=False) for piece in used[2 + len(special) :]])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, unk_token=UNKNOWN)
    tokenizer.chat_template = template
    tokenizer.response_template = response_template
    tokenizer.save_pretrained(folder)


def _pieces(text: str, used: list[str], special: Sequence[str]) -> list[str]:
    """Cut `text` into short pieces, none of which is used already; a special token is a piece."""
    if text in special:
        return [text]
    pieces: list[str] = []
    while text:
        length = next((n for n in range(SHORTEST, len(text) + 1) if text[:n] not in used), None)
        if length is None:  # nothing new is left: the last piece becomes longer
            used.remove(pieces[-1])
            text = pieces.pop() + text
            length = len(text)
        piece, text = text[:length], text[length:]
        used.append(piece)
        pieces.append(piece)
    return pieces
