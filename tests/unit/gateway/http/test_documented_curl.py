"""The examples of curl in documents: sent as they stand, but for the address, to a gateway with a fake engine."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.repo.documented import Command, copied, documents
from tests.services import SECRET, Stack

EXAMPLES = [command for path in documents() for command in copied(path) if command.words[0] == "curl"]
ADDRESS = re.compile(r"(?:http://)?(?:localhost|127\.0\.0\.1|GATEWAY):(?:\d+|PAGE_PORT)(?=/)")
KEYS = ("KEY", "evaluation-only")
# The gateway answers in the place of Envoy, too, behind which tests/unit/cli/test_up_envoy.py puts the same call.
MODEL = "m"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A gateway without keys, one with the keys of the documents, and the page with the secret of the administrator."""
    folder = tmp_path_factory.mktemp("stack")
    keys = folder / "keys.yaml"
    entries = [
        f"{{hash: {hashlib.sha256(key.encode()).hexdigest()}, tenant: {key}, names_users: true}}" for key in KEYS
    ]
    keys.write_text(f"keys: [{', '.join(entries)}]\n")
    stack = Stack(folder)
    try:
        stack.worker("a", model=MODEL, engine="fake")
        opened = stack.gateway(http_listen="127.0.0.1:0", page_listen="127.0.0.1:0").wait_for("listening")
        with_keys = stack.start("gateway", scheduler=stack.addresses, http_listen="127.0.0.1:0", keys=str(keys))
        with_keys.wait_for("ready")
        locked = with_keys.wait_for("listening")
        ports = {"open": opened["http_port"], "locked": locked["http_port"], "page": opened["page_port"]}
        yield {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    finally:
        stack.close()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.document)
def test_an_example_of_curl_is_answered(example: Command, addresses: dict[str, str]) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    line = " ".join(example.words)
    name = "page" if "/usage" in line else "locked" if any(f"Bearer {key}" in line for key in KEYS) else "open"
    words = [ADDRESS.sub(addresses[name], word).replace("$FAIRLEAD_ADMIN_SECRET", SECRET) for word in example.words]
    done = subprocess.run([*words, "--max-time", "60", "--fail-with-body"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_documents_have_examples_for_each_gateway() -> None:
    assert len(EXAMPLES) >= 6
