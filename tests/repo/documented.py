"""The commands that documents give: those of fenced blocks, which readers copy, and those that a sentence names."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.repo.test_text import ROOT, text_files

# Documents that say what was once, and that name commands of that time.
PAST = {ROOT / "CHANGELOG.md", ROOT / "changes", ROOT / "docs" / "adr", ROOT / "tests"}
VENDORED = ROOT / "gateway" / "page" / "static" / "vendor"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`([^`]+)`")
INNER = re.compile(r"\$\(([^()]*)\)")
DEFINED = re.compile(r"^(\w+)\(\) *\{", re.MULTILINE)
ASSIGNED = re.compile(r"[A-Za-z_]+=")
SEPARATORS = {"&", "&&", "|", "||", ";", "{", "}", "do", "done", "then", "fi"}


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a document: its words, without the variables that it sets."""

    document: str
    words: tuple[str, ...]
    is_whole: bool = True  # readers copy it; a sentence may name a part of a command alone

    def __str__(self) -> str:
        return f"{self.document}: {' '.join(self.words)}"


def documents() -> list[Path]:
    """Return the documents whose commands hold today."""
    return [path for path in text_files() if path.suffix == ".md" and not {path, *path.parents} & {*PAST, VENDORED}]


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language; "" has those without one."""
    return [body for _, named, body in FENCE.findall(text) if named == language]


def copied(path: Path) -> Iterator[Command]:
    """Yield the commands of the blocks for a shell."""
    for block in blocks(path.read_text(), "sh"):
        functions = set(DEFINED.findall(block))
        for words in split(DEFINED.sub("", block)):
            if words[0] not in functions:
                yield Command(_name(path), words)


def named(path: Path, programs: set[str]) -> Iterator[Command]:
    """Yield what sentences name in backquotes and begins with one of the programs."""
    for span in NAMED.findall(FENCE.sub("", path.read_text())):
        line = " ".join(span.split())
        for words in split(line) if line.partition(" ")[0] in programs or ASSIGNED.match(line) else []:
            if words[0] in programs and len(words) > 1:
                yield Command(_name(path), words, is_whole=False)


def split(script: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each simple command of a script, those of substitutions first."""
    script = script.replace("\\\n", " ")
    for inner in INNER.findall(script):
        yield from split(inner)
    for line in script.splitlines():
        lexer = shlex.shlex(INNER.sub("SUBSTITUTED", line), posix=True, punctuation_chars="&|;")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in SEPARATORS:
                words.append(word)
            elif words:
                yield from _without_variables(words)
                words = []


def _without_variables(words: list[str]) -> Iterator[tuple[str, ...]]:
    if words[0] in ("export", "for"):
        return
    while words and ASSIGNED.match(words[0]):
        words = words[1:]
    if words:
        yield tuple(words)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))
