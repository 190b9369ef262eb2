"""YAML files that people write: every complaint names file, line and key."""

import math
from pathlib import Path
from typing import Any

import yaml

from serving import yaml_nodes
from serving.config import MOST, ConfigError
from serving.names import normalized


class ConfigEntry:
    """A value and where it stands. Whatever asks for something else than there is raises ConfigError.

    No number may be above serving.config.MOST.
    """

    def __init__(self, node: yaml.Node, file: str, path: str) -> None:
        self._node = node
        self._file = file
        self._path = path

    def complaint(self, message: str) -> ConfigError:
        """To be raised: `message`, with the place before it."""
        where = f"{self._file}:{self._node.start_mark.line + 1}"
        return ConfigError(f"{where}: {self._path}: {message}" if self._path else f"{where}: {message}")

    def fields(self, *known: str) -> dict[str, "ConfigEntry"]:
        """The values of a mapping that has none but the `known` keys."""
        values = self.named()
        for key, entry in values.items():
            if key not in known:
                # The key's own line, which is the value's or one before.
                raise entry.complaint(f"unknown key {key!r}; known keys: {', '.join(known)}")
        return values

    def named(self) -> dict[str, "ConfigEntry"]:
        """The values of a mapping whose keys are names."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.complaint(f"expected a mapping, got {self._shown()}")
        values: dict[str, ConfigEntry] = {}
        for key_node, node in self._node.value:
            key = str(key_node.value)
            entry = ConfigEntry(node, self._file, f"{self._path}.{key}" if self._path else key)
            if key in values:
                raise entry.complaint("given twice")
            values[key] = entry
        return values

    def entries(self) -> list["ConfigEntry"]:
        """The values of a list."""
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.complaint(f"expected a list, got {self._shown()}")
        return [ConfigEntry(node, self._file, f"{self._path}[{i}]") for i, node in enumerate(self._node.value)]

    def text(self) -> str:
        """A string that is not empty."""
        value = self._value()
        if not isinstance(value, str) or not value:
            raise self.complaint(f"expected a text, got {self._shown()}")
        return value

    def name(self) -> str:
        """A text that can be a name, in its one spelling."""
        try:
            return normalized(self.text())
        except ValueError as error:
            raise self.complaint(str(error)) from error

    def flag(self) -> bool:
        """A truth value."""
        value = self._value()
        if not isinstance(value, bool):
            raise self.complaint(f"expected true or false, got {self._shown()}")
        return value

    def count(self) -> int:
        """A whole number above 0."""
        value = self._value()
        if type(value) is not int or value <= 0:
            raise self.complaint(f"expected a whole number > 0, got {self._shown()}")
        return int(self._at_most(MOST, value))

    def amount(self) -> float:
        """A number, 0 or more."""
        value = self._value()
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise self.complaint(f"expected a number >= 0, got {self._shown()}")
        return float(self._at_most(MOST, value))

    def positive(self, most: int = MOST) -> float:
        """A number above 0."""
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
    """The document `text`, called `file` in complaints; raises ConfigError unless it is YAML and not empty."""
    try:
        node = yaml_nodes.compose(text, file)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if node is None:
        raise ConfigError(f"{file}:1: is empty")
    return ConfigEntry(node, file, "")


def text_of(path: str) -> str:
    """The file's content; raises ConfigError."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
