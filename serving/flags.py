"""A service's command line: `--<option> VALUE`, and `--<option>` or `--no-<option>` for a Boolean option."""

import argparse
import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field
from typing import Any, NoReturn

from serving.environment import PREFIX, SHARED, ServiceName, variable


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises ValueError, because the usage that argparse prints is longer than a screen."""

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with `message`."""
        raise ValueError(message)


def flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def parse_flags(
    fields: Sequence[Field[Any]],
    kinds: Mapping[str, type],
    argv: Sequence[str],
    service: ServiceName,
    prog: str,
) -> dict[str, Any]:
    """Return the options that `argv` sets, as strings or Booleans by name; `config` is one of them.

    Raise ValueError for a wrong argument, or SystemExit for `--help`.
    """
    parser = _Parser(prog=prog, allow_abbrev=False, epilog=_epilog(service))
    parser.add_argument("--config", metavar="FILE", help="YAML file with any of these options as keys")
    for field in fields:
        name = flag(field.name)
        settings: dict[str, Any] = {"metavar": "VALUE"}
        if kinds[field.name] is bool:
            _check_alone(name, argv)
            settings = {"action": argparse.BooleanOptionalAction}
        parser.add_argument(name, default=None, help=_help(field), **settings)
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        raise ValueError(_complaint(unknown[0], [flag(name) for name in vars(given)]))
    return {name: value for name, value in vars(given).items() if value is not None}


def _check_alone(on: str, argv: Iterable[str]) -> None:
    """Raise ValueError if a value follows the Boolean flag `on` or its `--no-` form."""
    off = on.replace("--", "--no-", 1)
    words = [word for argument in argv for word in argument.split("=", 1)]
    for first, second in itertools.pairwise(words):
        if first in (on, off) and not second.startswith("-"):
            raise ValueError(f"{first}: takes no value, got {second!r}; write {on} or {off}")


def _complaint(argument: str, known: Sequence[str]) -> str:
    """Return an error message of one line for an unknown argument."""
    name = argument.partition("=")[0]
    close = difflib.get_close_matches(name, known, n=1)
    return f"{name}: no such option; nearest: {close[0]}" if close else f"{name}: no such option; see --help"


def _help(field: Field[Any]) -> str:
    """Return the help text with unit, choices and default. The text itself explains a default that is None or empty."""
    choices = ", ".join(field.metadata.get("choices", ()))
    default = "" if field.default in (None, "") else f"default: {_shown(field.default)}"
    notes = "; ".join(note for note in (field.metadata.get("unit"), choices, default) if note)
    text = str(field.metadata["help"])
    return (f"{text} ({notes})" if notes else text).replace("%", "%%")


def _shown(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _epilog(service: ServiceName) -> str:
    plain = ", ".join(PREFIX + option.upper() for option in SHARED)
    return (
        f"An option may also be a key of the YAML file, or an environment variable: --listen is "
        f"{variable(service, 'listen')}. Plain names do for what all services share: {plain}."
    )
