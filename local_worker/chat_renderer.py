"""Chats as token ids, of which only the chat template makes special tokens.

A tokenizer reads the text of a special token as that token, wherever it stands: a message or a tool's result could end
its own turn and begin one of the system. So what callers give is encoded as text.

The template may trim, escape and rearrange what it is given. Therefore the special tokens within are interrupted by a
mark, a character that nothing else has; what stands around a mark in the rendered text came from a caller. The mark is
removed before the text is encoded, so that texts without special tokens have the ids that they would have otherwise.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

MARKS = range(0xF0000, 0xF0100)  # private use: a text that has all of them is refused


class ChatRenderer:
    """The chat template of a tokenizer of transformers, for one thread at a time."""

    def __init__(self, tokenizer: Any, eos_token_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        ids = {token for token, entry in added.items() if entry.special} | set(tokenizer.all_special_ids)
        self._special = frozenset(ids | set(eos_token_ids))
        texts = {text for text in map(tokenizer.convert_ids_to_tokens, self._special) if text}
        self._whole = re.compile(_any_of(texts))
        self._beginning = re.compile(_any_of({text[:2] for text in texts}))
        # Not letters, with which words begin that the template compares, such as roles.
        self._first = re.compile(_any_of({text[0] for text in texts if not text[0].isalnum()}))

    def text(self, turns: Sequence[Mapping[str, Any]], tools: Any = None, **options: Any) -> str:
        """Return the rendered chat; raises whatever the template raises. `options` are those of transformers."""
        return str(self._tokenizer.apply_chat_template(turns, tools=tools, tokenize=False, **options))

    def ids(self, turns: Sequence[Mapping[str, Any]], tools: Any = None, **options: Any) -> list[int]:
        """Return the token ids of the rendered chat, as `text`; raise ValueError for a text with all MARKS."""
        given = {"turns": turns, "tools": tools, **options}
        # The first character alone counts: the template may remove what follows, or join the next text to it.
        if not any(self._beginning.search(text) or self._first.search(text) for text in _texts(given)):
            return self._encoded(self.text(**given), "")
        mark = next((mark for mark in map(chr, MARKS) if not any(mark in text for text in _texts(given))), None)
        if mark is None:
            raise ValueError("it has all characters of a kind that no text needs, from U+F0000 on")
        text = self.text(**_marked(given, self._whole, mark))
        # Where the template joins or removes parts of texts, what was no special token could become one. So each
        # character with which one begins is followed by a mark, unless this makes no difference.
        careful = self.text(**_marked(given, self._first, mark))
        if len(self._whole.findall(careful)) != len(self._whole.findall(text)):
            text = careful
        return self._encoded(text, mark)

    def _encoded(self, text: str, mark: str) -> list[int]:
        pieces = text.split(mark) if mark else [text]
        if len(pieces) == 1 or not self._tokenizer.is_fast:
            return [token for piece in pieces for token in self._ids(piece)]
        ends = [*accumulate(map(len, pieces))][:-1]  # places of the marks
        plain = "".join(pieces)
        encoding = self._tokenizer(plain, add_special_tokens=False, return_offsets_mapping=True)
        ids: list[int] = []
        for token, (start, stop) in zip(encoding["input_ids"], encoding["offset_mapping"], strict=True):
            is_forged = token in self._special and bisect_right(ends, start) < bisect_right(ends, stop - 1)
            ids += self._as_text(plain[start:stop]) if is_forged else [token]
        return ids

    def _as_text(self, text: str) -> Iterator[int]:
        """Yield the ids of the text of a special token, of which no part is one."""
        for part in (text[:1], text[1:]):
            ids = self._ids(part) if part else []
            yield from ids if self._special.isdisjoint(ids) else [each for letter in part for each in self._ids(letter)]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def _texts(value: Any) -> Iterator[str]:
    """Yield all strings in `value`, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


def _marked(value: Any, pattern: re.Pattern[str], mark: str) -> Any:
    """Return `value` with `mark` after the first character of what `pattern` matches in its strings."""
    if isinstance(value, str):
        return pattern.sub(lambda found: found[0][:1] + mark + found[0][1:], value)
    if isinstance(value, Mapping):
        return {_marked(key, pattern, mark): _marked(inner, pattern, mark) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(inner, pattern, mark) for inner in value]
    return value


def _any_of(texts: Iterable[str]) -> str:
    """Return an expression of the longest of `texts` at a place, which looks at each character once."""
    following: defaultdict[str, set[str]] = defaultdict(set)
    for text in texts:
        following[text[:1]].add(text[1:])
    is_whole = following.pop("", None) is not None
    parts = [re.escape(first) + (_any_of(rest) if rest != {""} else "") for first, rest in sorted(following.items())]
    if not parts:
        return "" if is_whole else "(?!)"
    return f"(?:{'|'.join(parts)}){'?' if is_whole else ''}"
