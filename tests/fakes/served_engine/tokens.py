"""The tokens of the served engine, which are bytes: the next one follows from all tokens before it."""

import zlib

from fairlead.token_ids import pack_ids

EOS = 256
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def next_token(tokens: list[int], ignore_eos: bool) -> int:
    """Mostly letters, sometimes two bytes of one character, sometimes the end."""
    if tokens[-1] == 0xC3:
        return 0xA9
    number = zlib.crc32(pack_ids(tokens))
    if number % 11 == 0:
        return 0xC3
    return EOS if number % 61 == 0 and not ignore_eos else 97 + number % 26


def output_after(prompt: str, count: int) -> tuple[str, list[int]]:
    """The text and the tokens of an output that ignores the end; a cut character at its end is no text."""
    tokens = list(prompt.encode())
    for _ in range(count):
        tokens.append(next_token(tokens, ignore_eos=True))
    generated = tokens[-count:]
    return bytes(generated).decode(errors="ignore"), generated


def text_of(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token < EOS).decode(errors="replace")
