"""Checks that refuse a prompt which is certainly too long, before it is tokenized.

Token ids are counted. Each message of a chat makes at least one token, because templates write its role or a separator.
Text makes at least one token per `longest_token` characters, the length of the longest entry of the vocabulary (0: not
known). A prompt that could be served is therefore refused only if it is mostly text without meaning to the model: text
that the template or tokenizer drops (white space around a message), or that becomes one unknown token.
"""

from fairlead.errors import TooLong
from fairlead.token_ids import TOKEN_BYTES
from fairlead.v1 import common_pb2


def check_size(prompt: common_pb2.Prompt, max_tokens: int, longest_token: int) -> None:
    """Raise TooLong for a prompt that certainly has more than `max_tokens` tokens."""
    chat = prompt.chat.messages
    if packed := prompt.token_ids.packed:
        check_token_ids(len(packed) // TOKEN_BYTES, max_tokens)
    check_messages(len(chat), max_tokens)  # before the loop over them
    characters = len(prompt.text)
    for message in chat:
        characters += len(message.content)
        for call in message.tool_calls:
            characters += len(call.name) + len(call.arguments)
    for tool in prompt.chat.tools:
        characters += len(tool.name) + len(tool.description) + len(tool.parameters)
    check_characters(characters, max_tokens, longest_token)


def check_token_ids(count: int, max_tokens: int) -> None:
    """Raise TooLong if `count` token ids are more than `max_tokens`."""
    if count > max_tokens:
        raise TooLong(f"at most {max_tokens} prompt tokens, got {count}", "prompt")


def check_messages(count: int, max_tokens: int) -> None:
    """Raise TooLong if a chat of `count` messages certainly has more than `max_tokens` tokens."""
    if count > max_tokens:
        raise TooLong(f"at most {max_tokens} prompt tokens, which no chat of {count} messages makes", "prompt")


def check_characters(count: int, max_tokens: int, longest_token: int) -> None:
    """Raise TooLong if `count` characters certainly make more than `max_tokens` tokens.

    `longest_token` is the largest number of characters that one token stands for.
    """
    most = max_tokens * longest_token
    if 0 < most < count:
        raise TooLong(
            f"at most {max_tokens} prompt tokens, which no text of more than {most} characters makes; got {count}",
            "prompt",
        )
