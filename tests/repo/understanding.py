"""What every command of a document has to be: something that its program would understand.

A check raises an error where a command names what there is not. Fairlead's own programs parse it themselves.
"""

import argparse
import contextlib
import functools
import importlib
import importlib.util
import io
import json
import re
import runpy
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cli.__main__ import VERBS
from endpoint_picker.config import PickerConfig
from engine_adapter.config import AdapterConfig
from gateway.config import GatewayConfig
from global_scheduler.config import SchedulerConfig
from local_worker.config import WorkerConfig
from serving.config import load
from serving.environment import ServiceName
from tests.repo.documented import Command
from tests.repo.test_text import ROOT
from throttler.config import ThrottlerConfig

SERVICES = {
    "endpoint_picker": (PickerConfig, ServiceName.PICKER),
    "engine_adapter": (AdapterConfig, ServiceName.ADAPTER),
    "gateway": (GatewayConfig, ServiceName.GATEWAY),
    "global_scheduler": (SchedulerConfig, ServiceName.SCHEDULER),
    "local_worker": (WorkerConfig, ServiceName.WORKER),
    "throttler": (ThrottlerConfig, ServiceName.THROTTLER),
}
ENVIRONMENT = {"FAIRLEAD_SECRET": "x" * 16}
# The options of `vllm serve` that documents name; real servers start with them in tests/system/vllm and lab/bench.
VLLM = {"max-num-seqs", "max-num-batched-tokens", "long-prefill-token-threshold", "kv-events-config", "port"}
UNCHECKED = {
    "lab.bench.NAME": "stands for every benchmark",
    "bench.compiled": "a program of a former commit, which the document names",
}
# Packages that only the environment of `make vllm-venv` has: the programs that need them are not loaded elsewhere.
ABSENT = {"aiohttp", "vllm"}
WORKLOAD = re.compile(r"(?:deployment|statefulset|pod)/(fairlead-[a-z]+)")


class _Parsed(Exception):
    """A program is about to parse its arguments."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def _options(words: tuple[str, ...]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def _parse(command: Command, parser: argparse.ArgumentParser, arguments: tuple[str, ...]) -> None:
    """Let a parser have the whole command, or compare the options that a part of one has with those that it lists.

    A program that a sentence names without arguments starts so, unless it requires some.
    """
    if command.is_whole:
        parser.parse_args(arguments)
    elif not arguments:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                parser.parse_args(arguments)
        except SystemExit:
            assert "are required" in said.getvalue(), said.getvalue()
    else:
        listed = re.findall(r"--[a-z][a-z0-9-]*", parser.format_help())
        assert _options(arguments) <= {*listed, "--help"}


def fairlead(command: Command) -> None:
    """Check a verb and its arguments."""
    verb, *_ = command.words[1:]
    parser = argparse.ArgumentParser(prog="fairlead", exit_on_error=False)
    verbs = parser.add_subparsers()
    importlib.import_module(VERBS[verb]).add_parser(verbs)
    _parse(command, verbs.choices[verb], command.words[2:])


def python(command: Command) -> None:
    """Check a module or a script and its arguments, which it parses itself."""
    match command.words[1:]:
        case ["-c", code]:
            compile(code, "-c", "exec")
        case ["-m", module, *arguments] if module in SERVICES:
            _service(command, module, arguments)
        case ["-m", module, *_] if module in UNCHECKED:
            pass
        case ["-m", module, *arguments]:
            spec = importlib.util.find_spec(module)
            assert spec is not None
            assert spec.origin is not None
            origin = Path(spec.origin)
            main = origin.parent / "__main__.py" if origin.name == "__init__.py" else origin
            _program(command, main, tuple(arguments))
        case [script, *arguments]:
            _program(command, ROOT / script, tuple(arguments))


def _service(command: Command, module: str, arguments: list[str]) -> None:
    config, service = SERVICES[module]
    if command.is_whole:
        load(config, service, arguments, ENVIRONMENT, prog=module)
    elif arguments != ["--help"]:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            load(config, service, ["--help"], ENVIRONMENT, prog=module)
        assert _options(tuple(arguments)) <= set(re.findall(r"--[a-z-]+", shown.getvalue()))


def _program(command: Command, file: Path, arguments: tuple[str, ...]) -> None:
    """Run a program until it parses its arguments. Those that parse none with argparse need no arguments."""
    source = file.read_text()
    assert '__name__ == "__main__"' in source
    if "add_argument(" not in source and "parse_args(" not in source:
        assert _options(arguments) == set()
        return

    def stop(parser: argparse.ArgumentParser, *_: object) -> None:
        raise _Parsed(parser)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [str(file), *arguments])
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        try:
            runpy.run_path(str(file), run_name="__main__")
        except _Parsed as stopped:
            parser = stopped.parser
        except ModuleNotFoundError as error:
            if error.name not in ABSENT:
                raise
            assert all(f'"{option}"' in source for option in _options(arguments))
            return
    _parse(command, parser, arguments)


def phony_verbs() -> set[str]:
    """Return what the Makefile declares."""
    return set(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split())


def make(command: Command) -> None:
    """Check verbs, and that the Makefile reads the variables."""
    text = (ROOT / "Makefile").read_text()
    for word in command.words[1:]:
        variable, is_set, _ = word.partition("=")
        assert f"$({variable})" in text if is_set else word in phony_verbs()


def pip(command: Command) -> None:
    """Check that extras and files are there; what others publish is not ours to check."""
    words = iter(command.words[2:])
    for word in words:
        if word in ("-c", "-r", "--requirement", "--constraint"):
            assert (ROOT / next(words)).is_file()
        elif ours := re.fullmatch(r"(\.|fairlead-serving|\./fairlead|fairlead)(?:\[([a-z-]+)\])?", word):
            folder = ROOT / "fairlead" if ours[1] in ("./fairlead", "fairlead") else ROOT
            project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
            assert ours[2] is None or ours[2] in project["optional-dependencies"]
        else:
            assert word == "--no-deps"


def curl(command: Command) -> None:
    """Check that a body is JSON. tests/unit/gateway/http/test_documented_curl.py sends it."""
    if "-d" in command.words[:-1]:
        json.loads(command.words[command.words.index("-d") + 1])


def kubectl(command: Command) -> None:
    """Check that manifests and workloads are there. tests/system/deploy renders every form against schemas."""
    words = command.words
    if "-k" in words:
        assert (ROOT / words[words.index("-k") + 1] / "kustomization.yaml").is_file()
    assert {re.sub(r"-\d+$", "", name) for name in WORKLOAD.findall(" ".join(words))} <= _workloads()


@functools.cache
def _workloads() -> set[str]:
    files = (ROOT / "deploy" / "k8s" / "base").glob("*.yaml")
    manifests = [each for file in files for each in yaml.safe_load_all(file.read_text())]
    return {each["metadata"]["name"] for each in manifests if each.get("kind") in ("Deployment", "StatefulSet")}


def helm(command: Command) -> None:
    """Check that the chart is there. tests/system/deploy/test_chart.py renders the values of deploy/README.md."""
    for word in command.words:
        assert not word.startswith("deploy/") or (ROOT / word / "Chart.yaml").is_file()


def docker(command: Command) -> None:
    """Check that the file is there and has the argument. tests/system/deploy/test_docker.py reads the files."""
    words = command.words
    text = (ROOT / words[words.index("-f") + 1]).read_text()
    for argument in (words[place + 1] for place, word in enumerate(words) if word == "--build-arg"):
        assert f"ARG {argument.partition('=')[0]}" in text


def envoy(command: Command) -> None:
    """Check that the file is there. tests/unit/throttler starts Envoy with what it says."""
    if "-c" in command.words:
        assert (ROOT / command.words[command.words.index("-c") + 1]).is_file()


def vllm(command: Command) -> None:
    """Check options and settings in JSON."""
    if command.words[1] == "serve":
        assert _options(command.words) <= {f"--{name}" for name in VLLM}
    for word in command.words:
        if word.startswith("{"):
            json.loads(word)


def unchecked(command: Command) -> None:
    """Programs of others that a test of their own runs, or that stand for themselves."""


CHECKS: dict[str, Callable[[Command], None]] = {
    "fairlead": fairlead,
    "python": python,
    "python3": python,
    "make": make,
    "pip": pip,
    "curl": curl,
    "kubectl": kubectl,
    "helm": helm,
    "docker": docker,
    "envoy": envoy,
    "vllm": vllm,
    # Need a cluster, which no test has; the images' names are checked by tests/system/deploy/test_quick_start.py.
    "kind": unchecked,
    "minikube": unchecked,
    # tests/system/agents runs them with the settings of docs/agents.md (make test-clients).
    "claude": unchecked,
    "qwen": unchecked,
    "aider": unchecked,
    "open-webui": unchecked,
    # Tools of the system that make and decode a secret.
    "openssl": unchecked,
    "base64": unchecked,
}
