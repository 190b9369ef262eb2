"""Prompts that can never be served, told by their size: nothing is spent on tokenizing them."""

from fairlead.errors import TooLong
from fairlead.token_ids import TOKEN_BYTES
from fairlead.v1 import common_pb2


def check_size(prompt: common_pb2.Prompt, max_tokens: int, longest_token: int) -> None:
    """Raises TooLong for a prompt that has more than `max_tokens` tokens, whatever they are.

    Token ids are counted. Each message of a chat makes a token at least: templates write its role, or what parts it
    from the next. Text makes at least one token per `longest_token` characters, which is the longest entry of the
    vocabulary (0: not known). So nothing is refused that could be served, but for text that means nothing to the model:
    what its template or tokenizer drops (white space around a message), or takes together as one unknown token.
    """
    ids = len(prompt.token_ids.packed) // TOKEN_BYTES
    if ids > max_tokens:
        raise TooLong(f"at most {max_tokens} prompt tokens, got {ids}", "prompt")
    messages = len(prompt.chat.messages)
    if messages > max_tokens:
        raise TooLong(f"at most {max_tokens} prompt tokens, which no chat of {messages} messages makes", "prompt")
    most = max_tokens * longest_token
    characters = len(prompt.text) + sum(len(message.content) for message in prompt.chat.messages)
    if 0 < most < characters:
        raise TooLong(
            f"at most {max_tokens} prompt tokens, which no text of more than {most} characters makes; got {characters}",
            "prompt",
        )
