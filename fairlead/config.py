"""Configuration: one frozen dataclass per service, resolved once from file, environment and flags.

Precedence, low to high: the field's default, the YAML file (`--config` or `FAIRLEAD_CONFIG`), environment
`FAIRLEAD_<FIELD>`, flag `--<field>`. Unknown keys and flags are errors; so is a value of the wrong type. A dataclass
checks ranges in `__post_init__` by raising ConfigError.
"""

import argparse
import dataclasses
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml

from fairlead import yaml_nodes
from fairlead.cost import NamedCost, parse_cost

C = TypeVar("C")
PREFIX = "FAIRLEAD_"
MOST = 2**31 - 1  # of any number: what protobuf fields, arrays and Redis hold without a thought
MAX_PORT = 65_535
LISTENERS = ("listen", "metrics", "health_listen")
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class ConfigError(Exception):
    """The configuration is wrong; the message names source, key and what is expected."""


def option(default: Any, help: str, *, choices: Sequence[str] = ()) -> Any:  # noqa: A002
    """A config field with its help text."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": tuple(choices)})


def load(cls: type[C], argv: Sequence[str], environ: Mapping[str, str], *, prog: str) -> C:
    """Resolve `cls` from `argv` and `environ`; raises ConfigError, or SystemExit for `--help`."""
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    types = get_type_hints(cls)
    flags = vars(_parser(fields, prog).parse_args(argv))
    values: dict[str, Any] = {}
    path = flags.pop("config") or environ.get(f"{PREFIX}CONFIG")
    if path:
        for key, (value, line) in _read(Path(path)).items():
            if key not in fields:
                raise ConfigError(f"{path}:{line}: unknown key {key!r}; known keys: {', '.join(sorted(fields))}")
            values[key] = _convert(value, types[key], f"{path}:{line}: {key}")
    for name in fields:
        variable = PREFIX + name.upper()
        if variable in environ:
            values[name] = _convert(environ[variable], types[name], variable)
        if flags[name] is not None:
            values[name] = _convert(flags[name], types[name], "--" + name.replace("_", "-"))
    for name, value in values.items():
        choices = fields[name].metadata.get("choices")
        if choices and value not in choices:
            raise ConfigError(f"{name}: must be one of {', '.join(choices)}, got {value!r}")
    return cls(**values)


def require(condition: bool, message: str) -> None:
    """Raise ConfigError with `message` unless `condition`."""
    if not condition:
        raise ConfigError(message)


def addresses(text: str, name: str) -> list[str]:
    """The addresses in `host:port,host:port`; raises ConfigError for the option `name`."""
    found = [part.strip() for part in text.split(",")]
    for address in found:
        host, _, port = address.rpartition(":")
        require(bool(host) and _is_port(port), f"{name}: expected host:port[,host:port], got {text!r}")
    return found


def check_listeners(config: object) -> None:
    """Raise ConfigError unless each of LISTENERS that `config` has ends in a port."""
    for name in LISTENERS:
        text: str = getattr(config, name)
        is_address = ":" in text and _is_port(text.rpartition(":")[2])
        require(text == "" or is_address, f"{name}: expected host:port, port at most {MAX_PORT}, got {text!r}")


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(MAX_PORT)) and int(text) <= MAX_PORT


def cost_function(text: str) -> NamedCost:
    """What the option `cost` names; raises ConfigError."""
    try:
        return parse_cost(text)
    except ValueError as error:
        raise ConfigError(f"cost: {error}") from error


def _parser(fields: Mapping[str, dataclasses.Field[Any]], prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="YAML file with any of the keys below")
    for name, field in fields.items():
        choices = f"{', '.join(field.metadata['choices'])}; " if field.metadata.get("choices") else ""
        text = f"{field.metadata.get('help', '')} ({choices}default: {field.default!r})".replace("%", "%%")
        parser.add_argument("--" + name.replace("_", "-"), metavar="VALUE", help=text)
    return parser


def _read(path: Path) -> dict[str, tuple[Any, int]]:
    """Values and their lines by key."""
    try:
        node = yaml_nodes.compose(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if node is None:
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: expected a mapping at the top, got {type(node.value).__name__}")
    values: dict[str, tuple[Any, int]] = {}
    for key, found in node.value:
        line = key.start_mark.line + 1
        try:
            values[str(key.value)] = yaml_nodes.value(found), line
        except ValueError as error:
            raise ConfigError(f"{path}:{line}: {key.value}: {error}") from error
    return values


def _convert(value: Any, kind: Any, where: str) -> Any:
    """`value` (from YAML, or text) as `kind`, one of str, int, float, bool; of `kind | None`, as `kind`."""
    if isinstance(kind, types.UnionType):
        kind = get_args(kind)[0]
    try:
        if kind is bool:
            return value if isinstance(value, bool) else _WORDS[str(value).lower()]
        if kind is int and not isinstance(value, bool):
            return _bounded(int(str(value)), where)
        if kind is float and not isinstance(value, bool):
            return _bounded(float(value), where)
        if kind is str and isinstance(value, (str, int, float)):
            return str(value)
    except (KeyError, ValueError, OverflowError):
        pass
    raise ConfigError(f"{where}: expected {kind.__name__}, got {value!r}")


def _bounded(number: float, where: str) -> float:
    require(abs(number) <= MOST, f"{where}: must be a number of at most {MOST}, got {number}")
    return number
