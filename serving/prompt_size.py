"""Prompts that can never be served, told by their size: nothing is spent on tokenizing them.

Token ids are counted. Each message of a chat makes a token at least: templates write its role, or what parts it from
the next. Text makes at least one token per `longest_token` characters, which is the longest entry of the vocabulary
(0: not known). So nothing is refused that could be served, but for text that means nothing to the model: what its
template or tokenizer drops (white space around a message), or takes together as one unknown token.
"""

from fairlead.errors import TooLong
from fairlead.token_ids import TOKEN_BYTES
from fairlead.v1 import common_pb2


def check_size(prompt: common_pb2.Prompt, max_tokens: int, longest_token: int) -> None:
    """Raise TooLong for a prompt that has more than `max_tokens` tokens, whatever they are."""
    chat = prompt.chat.messages
    check_token_ids(len(prompt.token_ids.packed) // TOKEN_BYTES, max_tokens)
    check_messages(len(chat), max_tokens)  # before each of them is looked at
    characters = len(prompt.text) + sum(len(message.content) for message in chat)
    check_characters(characters, max_tokens, longest_token)


def check_token_ids(count: int, max_tokens: int) -> None:
    """Raise TooLong for `count` token ids."""
    if count > max_tokens:
        raise TooLong(f"at most {max_tokens} prompt tokens, got {count}", "prompt")


def check_messages(count: int, max_tokens: int) -> None:
    """Raise TooLong for a chat of `count` messages."""
    if count > max_tokens:
        raise TooLong(f"at most {max_tokens} prompt tokens, which no chat of {count} messages makes", "prompt")


def check_characters(count: int, max_tokens: int, longest_token: int) -> None:
    """Raise TooLong for text of `count` characters, where a token stands for `longest_token` of them at most."""
    most = max_tokens * longest_token
    if 0 < most < count:
        raise TooLong(
            f"at most {max_tokens} prompt tokens, which no text of more than {most} characters makes; got {count}",
            "prompt",
        )
