"""mypy --strict sees the SDK as an application does: installed, typed, and strict about what it is given."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# mypy refuses an ignore that is not needed: so each of these lines has to be wrong in just this way.
CONSUMER = """
import fairlead


async def good() -> str:
    async with fairlead.Client("https://host", api_key="k", user="ann", app="chat") as client:
        messages: list[fairlead.Message] = [{"role": "user", "content": "Hi"}, ("assistant", "Yes?")]
        completion = await client.chat(messages, max_tokens=None, temperature=0.5, stop="END", timeout=10)
        tokens: int = completion.usage.output_tokens
        async with client.stream([1, 2], app="other", stop=["a", "b"], seed=tokens, each_token=True) as stream:
            async for chunk in stream:
                print(chunk.text, stream.accepted.worker if stream.accepted is not None else "")
        async with client.interaction() as interaction:
            return (await interaction.generate("x", top_p=0.9, model="m")).text + interaction.id


def blocking() -> float:
    with fairlead.SyncClient() as client, client.stream_chat([("user", "hi")], max_tokens=3) as stream:
        for chunk in stream:
            print(chunk.text)
        try:
            return stream.completion.timings.duration
        except fairlead.ThrottledUser as error:
            print(error.request_id, error.outcome)
            return error.retry_after


async def bad(client: fairlead.Client, interaction: fairlead.Interaction) -> None:
    await client.generate("x", max_token=3)  # type: ignore[call-arg]
    await client.generate("x", temperature="hot")  # type: ignore[arg-type]
    await client.chat("x")  # type: ignore[arg-type]
    client.stream("x", max_tokens=1.5)  # type: ignore[arg-type]
    client.stream_chat([("user", "x")], tempreature=0.5)  # type: ignore[call-arg]
    await interaction.generate("x", max_token=3)  # type: ignore[call-arg]
    interaction.stream("x", stop=3)  # type: ignore[arg-type]
    interaction.stream("x", app="another")  # type: ignore[call-arg]


def bad_blocking(client: fairlead.SyncClient, interaction: fairlead.SyncInteraction) -> None:
    client.generate("x", max_token=3)  # type: ignore[call-arg]
    client.chat([("user", "x")], temperature="hot")  # type: ignore[arg-type]
    client.stream("x", seed="x")  # type: ignore[arg-type]
    client.stream("x").completion.txet  # type: ignore[attr-defined]
    interaction.stream_chat([("user", "x")], max_token=3)  # type: ignore[call-arg]
    interaction.chat([("user", "x")], timeout="long")  # type: ignore[arg-type]
"""


def check(folder: Path) -> str:
    """What mypy says of the files in `folder`, which know of Fairlead only what is installed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".cache" / "consumer"), "."]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_an_application_is_checked_as_strictly_as_it_wants(tmp_path: Path) -> None:
    (tmp_path / "consumer.py").write_text(CONSUMER)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/sdk.md").read_text(), re.DOTALL)
    examples = [block for block in blocks if "import fairlead" in block]  # others are parts of programs
    assert len(examples) > 1
    for number, block in enumerate(examples):
        (tmp_path / f"program_{number}.py").write_text(block)
    assert check(tmp_path).startswith("Success: no issues found in ")
