"""Which recorded requests waited for which.

A request waits for its `parent`: `agent.stage` of the same interaction, or a row of the file, counted from 0. Without
one it waits for the row before it of the same interaction and agent. What continues a request that launched other
agents waits for the ends of these, too.
"""

from simulation.tables import TableRow

Agent = tuple[str, str]  # interaction, and the agent's name in it


class RequestDependencies:
    """Of one file; its rows are added in order."""

    def __init__(self) -> None:
        self._agents: list[Agent] = []  # by row
        self._newest: dict[Agent, int] = {}  # rows
        self._named: dict[tuple[Agent, str], int] = {}  # by agent and stage
        self._launched: dict[int, dict[Agent, None]] = {}  # by row

    def add(self, line: TableRow) -> tuple[int, ...]:
        """The rows that the next row of the file waits for, first the one that it continues or that launched it;
        raises InvalidRequest for a parent that is no earlier row."""
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
            raise line.wrong("parent", f"{text!r} is neither an earlier row nor agent.stage of one in its interaction")
        return parent
