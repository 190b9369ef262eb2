"""Regular expressions of JSON schemas, which are ECMAScript's, in the syntax of Rust's, which llguidance reads."""

import re

QUANTIFIER = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
SET_OPERATORS = ("&&", "--", "~~")  # within a class; ECMAScript reads two characters
# llguidance adds quotes and backslashes to a class with all control characters but line breaks.
OTHER = r"[^\x00"


def rust_pattern(pattern: str) -> str:
    """Return `pattern` in Rust's syntax; what Rust refuses is left as it is.

    No class of other characters has U+0000, which is of use to no caller.
    """
    written, at, is_class = list[str](), 0, False
    while at < len(pattern):
        taken = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        if is_class:
            is_literal = taken == "[" or pattern[at - 1 : at + 1] in SET_OPERATORS
            written.append(f"\\{taken}" if is_literal else taken)
            is_class = taken != "]"
        elif pattern.startswith(("[^]", "[]"), at):
            taken = "[^]" if pattern[at + 1] == "^" else "[]"
            written.append(r"[\s\S]" if taken == "[^]" else r"[^\s\S]")
        elif taken == "[":
            taken = "[^" if pattern.startswith("[^", at) else "["
            is_written = pattern.startswith(OTHER, at)
            written.append(OTHER if taken == "[^" and not is_written else taken)
            is_class = True
        elif taken == "{" and not QUANTIFIER.match(pattern, at):
            written.append(r"\{")
        else:
            written.append(taken)
        at += len(taken)
    return "".join(written)


def other_than(texts: list[str]) -> str:
    """Return a pattern, in Rust's syntax, of all texts but these; its length grows with the square of theirs."""
    branches = list[str]()
    for beginning in sorted({text[:end] for text in texts for end in range(len(text) + 1)}):
        longer = [text for text in texts if text.startswith(beginning) and text != beginning]
        following = sorted({text[len(beginning)] for text in longer})
        rest = f"{OTHER}{''.join(map(_escaped, following))}]" if following else r"[\s\S]"
        written = "".join(map(_escaped, beginning))
        branches.append(rf"{written}{rest}[\s\S]*")
        if beginning not in texts:
            branches.append(written)
    return f"^(?:{'|'.join(branches)})$"


def _escaped(character: str) -> str:
    return character if character.isascii() and character.isalnum() else f"\\x{{{ord(character):x}}}"
