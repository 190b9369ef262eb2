"""Every example runs against a real stack, with the API key of the environment."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stack import Stack

# limits.py asks another service, and runs in tests/unit/throttler/test_rate_limit_service.py.
EXAMPLES = sorted(path for path in Path("examples").glob("*.py") if path.stem != "limits")
JAVASCRIPT = Path("examples/javascript")
INSTALLED = Path(".cache/javascript")
KEY = "a key for tests only"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("stack")
    keys = folder / "keys.yaml"
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    keys.write_text(f"keys: [{{hash: {digest}, tenant: acme, names_users: true}}]\n")
    options = ["--keys", str(keys)]
    with (
        pytest.MonkeyPatch.context() as patch,
        Stack(workers=1, log_dir=folder, model="tiny", engine="fake", gateway_args=options) as stack,
    ):
        patch.setenv("FAIRLEAD_API_KEY", KEY)
        yield stack.gateway


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"generate", "chat", "agent", "load", "reflection"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, gateway: str) -> None:
    done = subprocess.run([sys.executable, str(example), gateway], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not done.stderr


@pytest.mark.parametrize("number", range(2))
def test_the_programs_of_the_sdk_s_page_run(number: int, gateway: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", Path("docs/sdk.md").read_text(), re.DOTALL)
    code = [block for block in blocks if "127.0.0.1:7000" in block][number].replace("127.0.0.1:7000", gateway)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def run(name: str, *args: str) -> str:
    done = subprocess.run([sys.executable, f"examples/{name}.py", *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_conversation_meets_its_cached_prefix(gateway: str) -> None:
    cached = [int(number) for number in re.findall(r"\((\d+) of \d+ prompt tokens", run("chat", gateway))]
    assert len(cached) == 3
    assert cached[2] > cached[1] > 0


def test_the_load_is_answered(gateway: str) -> None:
    lines = run("load", gateway, "--seconds", "1", "--rates", "20,40").splitlines()
    assert [line.split(":")[0] for line in lines] == ["user-0", "user-1"]
    assert all(re.search(r", [1-9]\d* answered, first token p50 [\d.]+ s, p99 [\d.]+ s, refused 0$", x) for x in lines)


def test_reflection_calls_any_method(gateway: str) -> None:
    generated = run("reflection", gateway).splitlines()
    assert "fairlead.v1.Inference" in generated[0]
    assert json.loads(generated[-1])["finished"]["usage"]["outputTokens"] == 8
    models = run("reflection", gateway, "fairlead.v1.Inference/ListModels", "{}").splitlines()
    assert [model["name"] for model in json.loads(models[-1])["models"]] == ["tiny"]


@pytest.fixture(scope="module")
def javascript() -> Path:
    """The JavaScript example with its packages."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    shutil.copytree(JAVASCRIPT, INSTALLED, dirs_exist_ok=True)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=INSTALLED, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        pytest.skip(f"npm: {done.stderr}")
    return INSTALLED / "client.js"


def test_another_language_needs_nothing_but_reflection(gateway: str, javascript: Path) -> None:
    done = subprocess.run(["node", str(javascript), gateway], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n24 tokens\n")
