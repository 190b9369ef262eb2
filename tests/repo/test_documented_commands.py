"""Every command that a document gives is understood by its program, and a program that has no check is found.

What can run here also runs. In tests/unit, curl of documents runs in gateway/http/test_documented_curl.py, programs of
README and docs/sdk.md in gateway/http/test_openai_client.py and cli/test_examples.py, and README's doors in
cli/test_up*.py.
"""

import ast
import json
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.repo.documented import Command, blocks, copied, documents, named, split
from tests.repo.test_text import ROOT
from tests.repo.understanding import CHECKS, phony_verbs

DOCUMENTS = documents()
READERS: dict[str, Callable[[str], object]] = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


def faults(commands: list[Command]) -> dict[str, str]:
    """The commands that are not understood, and why not."""
    found = {}
    for command in dict.fromkeys(commands):
        try:
            CHECKS[command.words[0]](command)
        except (Exception, SystemExit) as error:
            found[str(command)] = f"{type(error).__name__}: {error}"
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_readers_copy_are_understood(path: Path) -> None:
    assert faults(list(copied(path))) == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_sentences_name_are_understood(path: Path) -> None:
    assert faults(list(named(path, set(CHECKS)))) == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_of_commands_say_that_a_shell_reads_them_and_it_can(path: Path) -> None:
    text = path.read_text()
    assert [block for block in blocks(text, "") if block.split()[0] in CHECKS] == []
    for block in blocks(text, "sh"):
        read = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_of_code_and_of_settings_are_valid(path: Path) -> None:
    text = path.read_text()
    for code in blocks(text, "python"):
        compile(code, str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for language, read in READERS.items():
        assert all(read(settings) for settings in blocks(text, language))


def test_documents_have_commands() -> None:
    assert len([command for path in DOCUMENTS for command in copied(path)]) > 60
    assert len([command for path in DOCUMENTS for command in named(path, set(CHECKS))]) > 150


@pytest.mark.parametrize(
    "words",
    [
        ("fairlead", "fly"),
        ("fairlead", "up", "--besides", "http://127.0.0.1:1"),
        ("fairlead", "simulate", "--workers", "many"),
        ("python", "-m", "gateway", "--throttle", "sometimes"),
        ("python", "-m", "lab.bench.gone"),
        ("python", "-m", "lab.bench.judge", "--gone"),
        ("python", "docs/gone.py"),
        ("make", "haste"),
        ("make", "mutate", "CORES=windows"),
        ("pip", "install", ".[gone]"),
        ("pip", "install", "-r", "constraints/gone.txt"),
        ("curl", "http://127.0.0.1:8000/v1/completions", "-d", "{"),
        ("kubectl", "apply", "-k", "deploy/gone"),
        ("kubectl", "rollout", "status", "deployment/fairlead-gone"),
        ("helm", "install", "fairlead", "deploy/gone"),
        ("docker", "build", "-f", "deploy/docker/Dockerfile.gone", "."),
        ("envoy", "-c", "deploy/gone.yaml"),
        ("vllm", "serve", "model", "--gone"),
        ("gone",),
    ],
    ids=" ".join,
)
def test_a_command_that_no_program_understands_is_found(words: tuple[str, ...]) -> None:
    assert len(faults([Command("a.md", words)])) == 1
    assert len(faults([Command("a.md", words, is_whole=False)])) == 1 or words[-1] in ("many", "sometimes")


def test_help_lists_every_verb_of_the_makefile() -> None:
    listed = subprocess.run(["make", "-s", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in listed.splitlines()} == phony_verbs()


def test_a_script_is_split_into_its_commands() -> None:
    script = """
export KEY="$(openssl rand -hex 32)"
use() {  # a comment
  pip a | make b
}
for name in a b; do
  A=1 B=2 curl \\
    -d "$(kubectl get)" &
done
use KEY="$KEY"
"""
    found = ["openssl rand -hex 32", "kubectl get", "pip a", "make b", "curl -d SUBSTITUTED", "use KEY=$KEY"]
    assert [" ".join(words) for words in split(script.replace("use() {", "{"))] == found
