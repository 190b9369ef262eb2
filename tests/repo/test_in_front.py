"""The commands of the pages on what Fairlead stands before: what they name exists, and their options are read."""

import argparse
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from cli.__main__ import VERBS
from endpoint_picker.config import PickerConfig
from serving.config import load
from serving.environment import ServiceName
from throttler.config import ThrottlerConfig

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "in-front").glob("*.md"))
SERVICES = {
    "endpoint_picker": (PickerConfig, ServiceName.PICKER),
    "throttler": (ThrottlerConfig, ServiceName.THROTTLER),
}


def commands(page: Path) -> list[list[str]]:
    """The words of each command, without the variables that it sets."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [[word for word in shlex.split(line) if not re.match(r"[A-Z_]+=", word)] for line in lines]


def check(command: list[str]) -> None:
    """Raise an error if the command cannot be understood."""
    match command:
        case ["python", "-m", module, *flags]:
            config, service = SERVICES[module]
            load(config, service, flags, {"FAIRLEAD_SECRET": "x" * 16}, prog=module)
        case ["python", script, *_]:
            assert (ROOT / script).exists()
        case ["fairlead", verb, *_]:
            parser = argparse.ArgumentParser(exit_on_error=False)
            importlib.import_module(VERBS[verb]).add_parser(parser.add_subparsers())
            parser.parse_args(command[1:])
        case ["envoy", "--disable-hot-restart", "-c", path]:
            assert (ROOT / path).exists()
        case ["kubectl", "apply", "-k", path]:
            assert (ROOT / path / "kustomization.yaml").exists()
        case ["curl", *words]:
            json.loads(words[words.index("-d") + 1])
        case _:
            raise AssertionError(f"a command that nothing checks: {command}")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.stem))
def test_commands_are_understood(page: Path) -> None:
    assert page.read_text().rstrip().endswith("```"), "it ends in a command"
    for command in commands(page):
        check(command)


def test_there_is_a_page_for_each_starting_point() -> None:
    assert {page.stem for page in PAGES} == {"vllm", "envoy-gateway", "own-gateway"}
