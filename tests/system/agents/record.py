"""Record what programs send, for tests/system/agents/test_bodies.py: python -m tests.system.agents.record [NAME...].

Each program does one task. Of its requests the first and the last with tools are kept, and those without tools, with
texts cut, and with ids and paths replaced.
"""

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.system.agents.cluster import Cluster, running
from tests.system.agents.coding_agents import AGENTS
from tests.system.agents.recorder import Exchange, Recorder
from tests.system.agents.test_applications import COMMANDS, copying
from tests.system.agents.test_coding_agents import Workplace

BODIES = Path(__file__).parent / "bodies"
LONGEST = 120  # characters of a text
REPLACED = {
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}": "00000000-0000-4000-8000-000000000000",
    r"\b[0-9a-f]{64}\b": "0" * 64,
    r"ses_\w+": "ses_0",
    r"Linux [\w.-]+": "Linux 6.0",
}
Record = dict[str, Any]


def trimmed(value: Any) -> Any:
    """Cut the texts in a body, but for tasks."""
    if isinstance(value, dict):
        return {name: trimmed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [trimmed(each) for each in value]
    if isinstance(value, str) and len(value) > LONGEST and "Do these steps" not in value:
        return value[:LONGEST]
    return value


def kept(exchanges: list[Exchange], places: dict[str, str]) -> list[Record]:
    """Return the records of one program's exchanges."""
    records = []
    for exchange in exchanges:
        text = exchange.body.decode()
        for place, name in places.items():
            text = text.replace(place, name)
        for pattern, replacement in REPLACED.items():
            text = re.sub(pattern, replacement, text)
        records.append({"path": exchange.path, "body": trimmed(json.loads(text))})
    with_tools = [record for record in records if record["body"].get("tools")]
    others = [record for record in records if not record["body"].get("tools")]
    return [*with_tools[:1], *with_tools[1:][-1:], *others[:2]]


def record(cluster: Cluster, name: str, folder: Path) -> None:
    """Run one program, and write what it sent."""
    with Recorder(cluster.port) as recorder:
        url = f"http://127.0.0.1:{recorder.port}"
        if name in AGENTS:
            place = Workplace(name, folder, url)
            command, where, environment = place.command(1), place.folder, place.environment
        else:
            command = [*COMMANDS[name](folder), url, copying(name, folder, 1)]
            where, environment = folder, {"HOME": str(folder)}
        with running(command, where, environment):
            pass
    posts = [exchange for exchange in recorder.exchanges if exchange.body]
    print(name, [(each.status, each.ignored) for each in posts])
    records = kept(
        posts, {str(folder / "work"): "/project", str(folder / "home"): "/home/user", str(folder): "/project"}
    )
    (BODIES / f"{name}.json").write_text(json.dumps(records, indent=1) + "\n")


def main(names: Sequence[str]) -> None:
    """Record these programs."""
    BODIES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory))
        try:
            for name in names:
                folder = Path(directory, name)
                folder.mkdir()
                record(cluster, name, folder)
        finally:
            cluster.stack.close()


if __name__ == "__main__":
    main(sys.argv[1:] or [*AGENTS, *COMMANDS])
