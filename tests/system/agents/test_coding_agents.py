"""Coding agents with their default settings: each copies a file, and then another one in the same session."""

import json
from pathlib import Path
from string import Template

import pytest

from tests.system.agents.cluster import Cluster, running
from tests.system.agents.coding_agents import AGENTS, Agent
from tests.system.agents.engine import task
from tests.system.agents.programs import program

pytestmark = [pytest.mark.clients, pytest.mark.e2e, pytest.mark.slow]

WORDS = {1: "neap4821", 2: "spring7350"}
LAST = "The tide table is copied. " * 30  # takes seconds, in which a worker is killed


class Workplace:
    """The folders of an agent."""

    def __init__(self, name: str, folder: Path, url: str) -> None:
        self.agent: Agent = AGENTS[name]
        self.folder, self.home = folder / "work", folder / "home"
        self._program = str(program(self.agent.package, name))
        self._places = {"URL": url, "HOME": str(self.home), "FOLDER": str(self.folder)}
        for each in (self.folder, self.home):
            each.mkdir()
        for number, word in WORDS.items():
            (self.folder / f"low-{number}.txt").write_text(f"high water: {word}\n")
        for path, text in self.agent.files.items():
            file = Path(self._filled(path))
            file.parent.mkdir(exist_ok=True)
            file.write_text(self._filled(text))

    def command(self, number: int) -> list[str]:
        """The command by which the agent copies file `number`."""
        names = {"SOURCE": f"low-{number}.txt", "TARGET": f"high-{number}.txt"}
        *steps, last = json.loads(self._filled(json.dumps([*self.agent.copies, self.agent.edit + LAST]), **names))
        arguments = self.agent.first if number == 1 else self.agent.again
        return [self._program, *(self._filled(each, TASK=task(*steps, last)) for each in arguments)]

    @property
    def environment(self) -> dict[str, str]:
        """What the agent finds in its environment."""
        return {"HOME": str(self.home), **{name: self._filled(value) for name, value in self.agent.environment.items()}}

    def is_copied(self, number: int) -> bool:
        """Whether file `number` is there and right."""
        return (self.folder / f"high-{number}.txt").read_text().strip() == WORDS[number]

    def _filled(self, text: str, **names: str) -> str:
        return Template(text).safe_substitute({**self._places, **names})


@pytest.mark.parametrize("name", AGENTS)
def test_agents_do_their_tasks(cluster: Cluster, tmp_path: Path, name: str) -> None:
    place, before = Workplace(name, tmp_path, cluster.url), len(cluster.calls())
    cluster.fill()
    with running(place.command(1), place.folder, place.environment):
        cluster.make_room()
    assert place.is_copied(1)
    with running(place.command(2), place.folder, place.environment):
        cluster.kill_worker()
    assert place.is_copied(2)
    completed = cluster.completed(before)
    assert len({call["interaction"] for call in completed}) == 1, "the whole session is one interaction"
    assert max(call["attempts"] for call in completed) == 2, "a call has gone on at the other worker"
