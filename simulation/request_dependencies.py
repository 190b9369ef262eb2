"""Dependencies between recorded requests: which request waited for which.

A request waits for its `parent`, which is `agent.stage` of the same interaction, or a row number of the file, counted
from 0. A request without a parent waits for the previous row of the same interaction and agent. A request that
continues one that launched other agents also waits for the ends of these agents.
"""

from simulation.tables import TableRow

Agent = tuple[str, str]  # interaction, and the agent's name within it


class RequestDependencies:
    """The dependencies of the rows of one file. Rows are added in file order."""

    def __init__(self) -> None:
        self._agents: list[Agent] = []  # agent of each row
        self._newest: dict[Agent, int] = {}  # last row of each agent
        self._named: dict[tuple[Agent, str], int] = {}  # row by agent and stage
        self._launched: dict[int, dict[Agent, None]] = {}  # launched agents by row

    def add(self, line: TableRow) -> tuple[int, ...]:
        """Return the rows that the next row of the file waits for; the first is the one that it continues or that
        launched it.

        Raises InvalidRequest when the named parent is not an earlier row.
        """
        own = line.text("interaction"), line.text("agent")
        parent = self._parent(line, own)
        position = len(self._agents)
        self._agents.append(own)
        if own[0]:
            self._newest[own] = self._named[own, line.text("stage")] = position
        if parent is None:
            return ()
        launcher = self._agents[parent]
        if launcher == own:
            return parent, *(self._newest[agent] for agent in self._launched.get(parent, ()))
        if launcher[0] == own[0]:
            self._launched.setdefault(parent, {})[own] = None
        return (parent,)

    def _parent(self, line: TableRow, own: Agent) -> int | None:
        text = line.text("parent")
        if not text:
            return self._newest.get(own)
        agent, dot, stage = text.partition(".")
        if dot:
            parent = self._named.get(((own[0], agent), stage))
        else:
            parent = int(text) if text.isdecimal() and int(text) < len(self._agents) else None
        if parent is None:
            raise line.wrong(
                "parent", f"{text!r} is neither an earlier row nor agent.stage of one in the same interaction"
            )
        return parent
