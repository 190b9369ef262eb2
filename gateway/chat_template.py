"""What a caller may give to a model's chat template: variables, none of which the template has from somebody else."""

import math
from collections.abc import Iterator

from google.protobuf import struct_pb2

from fairlead.errors import InvalidRequest

FIELD = "prompt.chat.chat_template_kwargs"
MAX_BYTES = 4096  # of the variables as a message: far more than the switches that templates have
MAX_DEPTH = 8
# Parameters of the functions that render templates; then functions that templates call, and the tokenizer's own texts.
RESERVED = frozenset(
    (
        "add_generation_prompt",
        "chat",
        "chat_template",
        "continue_final_message",
        "conversation",
        "conversations",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "self",
        "tokenize",
        "tokenizer",
        "tokenizer_kwargs",
        "tools",
        "truncation",
        "raise_exception",
        "strftime_now",
        "additional_special_tokens",
        "bos_token",
        "cls_token",
        "eos_token",
        "extra_special_tokens",
        "mask_token",
        "pad_token",
        "sep_token",
        "unk_token",
    )
)


def check_template_kwargs(kwargs: struct_pb2.Struct, place: str) -> None:
    """Raise InvalidRequest for variables that are too large, nested too deeply, not finite, or reserved.

    The error names the field below `place`.
    """
    size = kwargs.ByteSize()
    if size > MAX_BYTES:
        raise InvalidRequest(f"at most {MAX_BYTES} bytes, got {size}", place)
    for name, value in kwargs.fields.items():
        if name in RESERVED:
            raise InvalidRequest("the chat template is not given this by callers", f"{place}.{name}")
        _check(value, f"{place}.{name}", MAX_DEPTH)


def _check(value: struct_pb2.Value, field: str, depth: int) -> None:
    if not depth:
        raise InvalidRequest(f"may be nested to a depth of at most {MAX_DEPTH}", field)
    if not math.isfinite(value.number_value):
        raise InvalidRequest(f"must be finite, got {value.number_value}", field)
    for inner in _parts(value):
        _check(inner, field, depth - 1)


def _parts(value: struct_pb2.Value) -> Iterator[struct_pb2.Value]:
    yield from value.list_value.values
    yield from value.struct_value.fields.values()
