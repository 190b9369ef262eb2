"""Configuration in YAML files; every error message names the file, the line and the key."""

import math
from pathlib import Path
from typing import Any

import yaml

from serving import yaml_nodes
from serving.config import MOST, ConfigError
from serving.names import normalized


class ConfigEntry:
    """A value of a YAML file with its place. A method that expects another type of value raises ConfigError.

    No number may exceed serving.config.MOST.
    """

    def __init__(self, node: yaml.Node, file: str, path: str) -> None:
        self._node = node
        self._file = file
        self._path = path

    def complaint(self, message: str) -> ConfigError:
        """Return a ConfigError for the caller to raise: `message` after the place of this value."""
        where = f"{self._file}:{self._node.start_mark.line + 1}"
        return ConfigError(f"{where}: {self._path}: {message}" if self._path else f"{where}: {message}")

    def fields(self, *known: str) -> dict[str, "ConfigEntry"]:
        """Return the values of a mapping; raise ConfigError for a key that is not among `known`."""
        values = self.named()
        for key, entry in values.items():
            if key not in known:
                # The line of the value; the key is on this line or the one before.
                raise entry.complaint(f"unknown key {key!r}; known keys: {', '.join(known)}")
        return values

    def named(self) -> dict[str, "ConfigEntry"]:
        """Return the values of a mapping by key; raise ConfigError for a key given twice."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.complaint(f"expected a mapping, got {self._shown()}")
        values: dict[str, ConfigEntry] = {}
        for key_node, node in self._node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.complaint(f"expected a text as a key, got {ConfigEntry(key_node, self._file, '')._shown()}")
            key = str(key_node.value)
            entry = ConfigEntry(node, self._file, f"{self._path}.{key}" if self._path else key)
            if key in values:
                raise entry.complaint("given twice")
            values[key] = entry
        return values

    def entries(self) -> list["ConfigEntry"]:
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.complaint(f"expected a list, got {self._shown()}")
        return [ConfigEntry(node, self._file, f"{self._path}[{i}]") for i, node in enumerate(self._node.value)]

    def text(self) -> str:
        """Return a string that is not empty."""
        value = self._value()
        if not isinstance(value, str) or not value:
            raise self.complaint(f"expected a text, got {self._shown()}")
        return value

    def name(self) -> str:
        """Return a string that is a valid name, normalized as in serving.names."""
        try:
            return normalized(self.text())
        except ValueError as error:
            raise self.complaint(str(error)) from error

    def flag(self) -> bool:
        """Return a Boolean value."""
        value = self._value()
        if not isinstance(value, bool):
            raise self.complaint(f"expected true or false, got {self._shown()}")
        return value

    def count(self, most: int = MOST) -> int:
        """Return an integer above 0 and not above `most`."""
        value = self._value()
        if type(value) is not int or value <= 0:
            raise self.complaint(f"expected a whole number > 0, got {self._shown()}")
        return int(self._at_most(most, value))

    def amount(self) -> float:
        """Return a finite number of at least 0."""
        value = self._value()
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise self.complaint(f"expected a number >= 0, got {self._shown()}")
        return float(self._at_most(MOST, value))

    def positive(self, most: int = MOST) -> float:
        """Return a finite number above 0 and not above `most`."""
        value = self._value()
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self.complaint(f"expected a number > 0, got {self._shown()}")
        return float(self._at_most(most, value))

    def _at_most(self, most: int, value: float) -> float:
        if value > most:
            raise self.complaint(f"expected at most {most}, got {self._shown()}")
        return value

    def _value(self) -> Any:
        if not isinstance(self._node, yaml.ScalarNode):
            return None
        try:
            return yaml_nodes.value(self._node)
        except ValueError as error:
            raise self.complaint(str(error)) from error

    def _shown(self) -> str:
        if isinstance(self._node, yaml.ScalarNode):
            return repr(self._value())
        return "a mapping" if isinstance(self._node, yaml.MappingNode) else "a list"


def read(text: str, file: str) -> ConfigEntry:
    """Parse the document `text`; error messages call it `file`. Raise ConfigError unless it is YAML and not empty."""
    try:
        node = yaml_nodes.compose(text, file)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if node is None:
        raise ConfigError(f"{file}:1: is empty")
    return ConfigEntry(node, file, "")


def text_of(path: str) -> str:
    """Return the file's content; raise ConfigError if it cannot be read or is not UTF-8."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
