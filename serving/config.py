"""Configuration: one frozen dataclass per service, resolved once from file, environment and flags.

Precedence, low to high: the field's default, the YAML file (`--config` or `FAIRLEAD_<SERVICE>_CONFIG`), the variable
`FAIRLEAD_<SERVICE>_<FIELD>` (serving/environment.py), the flag `--<field>` (serving/flags.py). Unknown keys,
variables and flags are errors; so is a value of the wrong type. A dataclass checks ranges in `__post_init__` by
raising ConfigError. Its fields that are made without `option` are constants: only a test sets them.
"""

import dataclasses
import types
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml

from serving import yaml_nodes
from serving.cost import NamedCost, parse_cost
from serving.environment import ServiceName, variables
from serving.flags import flag, parse_flags

C = TypeVar("C")
MOST = 2**31 - 1  # largest number in any configuration: protobuf fields, arrays and Redis can all hold it
MAX_PORT = 65_535
MIN_SECRET = 16  # characters
LISTENERS = ("listen", "http_listen", "page_listen", "metrics", "health_listen")
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_EXPECTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class ConfigError(Exception):
    """The configuration is wrong; the message names the source, the key and the expected value."""


def option(
    default: Any,
    help: str,  # noqa: A002
    *,
    choices: Sequence[str] = (),
    unit: str = "",
    change_when: str = "",
) -> Any:
    """Return a config field. `help` describes it; `change_when` names the situation in which its default is wrong."""
    metadata = {"help": help, "choices": tuple(choices), "unit": unit, "change_when": change_when}
    return dataclasses.field(default=default, metadata=metadata)


def options(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    """Return the fields of a configuration that are options."""
    return [field for field in dataclasses.fields(cls) if "help" in field.metadata]


def load(
    cls: type[C], service: ServiceName, argv: Sequence[str], environ: Mapping[str, str], *, prog: str, **constants: Any
) -> C:
    """Resolve `cls`, the options of `service`, from `argv` and `environ`, with other values for its `constants`.

    Raises ConfigError, or SystemExit for `--help`.
    """
    fields = {field.name: field for field in options(cls)}
    kinds = {name: _kind(hint) for name, hint in get_type_hints(cls).items()}
    try:
        flags = parse_flags(list(fields.values()), kinds, argv, service, prog)
        named = variables(service, [*fields, "config"], environ)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    configured = environ.get(named.pop("config", ""))
    path = flags.pop("config", configured)
    given = _read(Path(path), fields) if path else []
    given += [(name, environ[variable], variable) for name, variable in named.items()]
    given += [(name, value, flag(name)) for name, value in flags.items()]
    values = {name: _checked(value, kinds[name], fields[name], where) for name, value, where in given}
    return cls(**values, **constants)


def require(condition: bool, message: str) -> None:
    """Raise ConfigError with `message` unless `condition`."""
    if not condition:
        raise ConfigError(message)


def addresses(text: str, name: str) -> list[str]:
    """Return the addresses in `host:port,host:port`; raise ConfigError, which names the option `name`."""
    found = [part.strip() for part in text.split(",")]
    for address in found:
        host, _, port = address.rpartition(":")
        require(bool(host) and _is_port(port), f"{name}: expected host:port[,host:port], got {text!r}")
    return found


def check_secrets(secret: str, accepted_secret: str) -> None:
    """Raise ConfigError unless `secret`, and `accepted_secret` if there is one, have MIN_SECRET characters."""
    require(len(secret) >= MIN_SECRET, f"secret: needs at least {MIN_SECRET} characters (FAIRLEAD_SECRET)")
    require(
        accepted_secret == "" or len(accepted_secret) >= MIN_SECRET,
        f"accepted_secret: needs at least {MIN_SECRET} characters",
    )


def check_listeners(config: object) -> None:
    """Raise ConfigError unless the value of each option in LISTENERS that `config` has is an address to listen on."""
    for name in LISTENERS:
        if text := getattr(config, name, ""):
            check_listener(text, name)


def check_listener(text: str, name: str) -> None:
    """Raise ConfigError, which names the option `name`, unless `text` is host:port; without a host it is every one."""
    host, colon, port = text.rpartition(":")
    is_host = ":" not in host or (host.startswith("[") and host.endswith("]"))
    expected = f"expected host:port, an IPv6 host in brackets, port at most {MAX_PORT}"
    require(bool(colon) and is_host and _is_port(port), f"{name}: {expected}, got {text!r}")


def check_positive(config: object, *names: str) -> None:
    """Raise ConfigError unless the value of each option named is above 0; an option without a value passes."""
    for name in names:
        value = getattr(config, name)
        require(value is None or value > 0, f"{name}: must be above 0, got {value}")


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(MAX_PORT)) and int(text) <= MAX_PORT


def cost_function(text: str) -> NamedCost:
    """Return the cost function that the option `cost` names; raise ConfigError if there is none."""
    try:
        return parse_cost(text)
    except ValueError as error:
        raise ConfigError(f"cost: {error}") from error


def _read(path: Path, known: Collection[str]) -> list[tuple[str, Any, str]]:
    """Return the keys and values of a YAML file, each with its place in the file."""
    try:
        node = yaml_nodes.compose(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if node is None:
        return []
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: expected a mapping at the top, got {type(node.value).__name__}")
    given: list[tuple[str, Any, str]] = []
    for key_node, value_node in node.value:
        key, where = str(key_node.value), f"{path}:{key_node.start_mark.line + 1}"
        require(key in known, f"{where}: unknown key {key!r}; known keys: {', '.join(sorted(known))}")
        require(all(key != earlier for earlier, _, _ in given), f"{where}: {key}: given twice")
        try:
            given.append((key, yaml_nodes.value(value_node), f"{where}: {key}"))
        except ValueError as error:
            raise ConfigError(f"{where}: {key}: {error}") from error
    return given


def _kind(hint: Any) -> type:
    """Return the type of a field without `| None`: str, int, float or bool."""
    kind: type = get_args(hint)[0] if isinstance(hint, types.UnionType) else hint
    return kind


def _checked(value: Any, kind: type, field: dataclasses.Field[Any], where: str) -> Any:
    """Convert `value` (from YAML, or a string) to `kind`; raise ConfigError unless it is among the field's choices."""
    found = _convert(value, kind, where)
    choices = field.metadata["choices"]
    require(not choices or found in choices, f"{where}: must be one of {', '.join(choices)}, got {found!r}")
    return found


def _convert(value: Any, kind: type, where: str) -> Any:
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
    raise ConfigError(f"{where}: expected {_EXPECTED[kind]}, got {value!r}")


def _bounded(number: float, where: str) -> float:
    require(abs(number) <= MOST, f"{where}: must be a number of at most {MOST}, got {number}")
    return number
