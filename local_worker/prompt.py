"""The plain data that passes between the services and an encoder: a prompt, and its encoded form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat, and how the model's chat template renders it."""

    messages: tuple[tuple[str, str], ...]  # (role, content) of each message
    add_generation_prompt: bool = True  # end with the beginning of an answer
    continue_final_message: bool = False  # leave the last message's end open
    variables: Mapping[str, Any] = field(default_factory=dict)  # further ones that the template is given


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptToEncode:
    """A prompt for one of the models: a text, a chat, or packed token ids.

    A text is encoded with the special tokens that the model expects before or after it, unless they are not wanted.
    """

    model: str
    content: str | Chat | bytes
    cache_scope: str
    public_system: bool  # the chat's first message, a system message, is shared by every cache scope
    with_special_tokens: bool = True


class EncodedPrompt(NamedTuple):
    """A prompt as packed token ids and the packed digests of their full blocks, for one revision of the model."""

    token_ids: bytes
    digests: bytes
    system_tokens: int
    public_tokens: int
    revision: str
