"""A program with a client of others, of which a test has the text."""

import sys
from collections.abc import Sequence
from types import ModuleType


def main(argv: Sequence[str]) -> int:
    """Run the text that is the first argument as `python -c` does, and return 0; the program may raise anything."""
    program, *arguments = argv
    sys.argv = ["-c", *arguments]
    sys.modules["__main__"] = module = ModuleType("__main__")
    exec(compile(program, "<program>", "exec"), module.__dict__)
    return 0
