"""Applications that are written with libraries for agents: each does two tasks in one conversation."""

import os
import sys
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.system.agents import open_webui as open_webui_user
from tests.system.agents.cluster import CALLER, FRONT_KEY, Cluster, running
from tests.system.agents.engine import task
from tests.system.agents.programs import node_modules
from tests.unit.gateway.http.clients import python_with

pytestmark = [pytest.mark.clients, pytest.mark.e2e, pytest.mark.slow]

LAST = "The tide table is copied. " * 30  # takes seconds, in which a worker is killed
TOOLS = '''
import pathlib, sys
url, *tasks = sys.argv[1:]

def read_file(path: str) -> str:
    """Read a file."""
    return pathlib.Path(path).read_text()

def write_file(path: str, content: str) -> str:
    """Write a file."""
    pathlib.Path(path).write_text(content)
    return "written"
'''
OPENAI_AGENTS = (
    TOOLS
    + """
import agents

agents.set_tracing_disabled(True)
model = agents.OpenAIResponsesModel("tiny", agents.AsyncOpenAI(base_url=url + "/v1", api_key="any"))
tools = [agents.function_tool(read_file), agents.function_tool(write_file)]
agent = agents.Agent(name="copier", instructions="Copy tide tables.", model=model, tools=tools)
session = agents.SQLiteSession("tides")
for task in tasks:
    assert "copied" in agents.Runner.run_sync(agent, task, session=session).final_output
"""
)
LANGGRAPH = (
    TOOLS
    + """
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent

model = ChatOpenAI(model="tiny", base_url=url + "/v1", api_key="any", max_retries=5)
agent = create_react_agent(model, [read_file, write_file], checkpointer=InMemorySaver())
for task in tasks:
    said = agent.invoke({"messages": [("user", task)]}, {"configurable": {"thread_id": "tides"}})
    assert "copied" in said["messages"][-1].content
"""
)
SMOLAGENTS = (
    TOOLS
    + """
from smolagents import CodeAgent, OpenAIModel, tool

read_file.__doc__ += "\\n\\nArgs:\\n    path: Its path."
write_file.__doc__ += "\\n\\nArgs:\\n    path: Its path.\\n    content: What it will hold."
model = OpenAIModel("tiny", api_base=url + "/v1", api_key="any", client_kwargs={"max_retries": 5})
agent = CodeAgent(tools=[tool(read_file), tool(write_file)], model=model)
for task in tasks:
    assert "copied" in agent.run(task, reset=False)
"""
)
AI_SDK = """
import fs from "node:fs";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

const [url, ...tasks] = process.argv.slice(2);
const text = { type: "string" };
const schema = (properties) => jsonSchema({ type: "object", properties, required: Object.keys(properties) });
const tools = {
  read_file: tool({
    description: "Read a file.", inputSchema: schema({ path: text }),
    execute: ({ path }) => fs.readFileSync(path, "utf8"),
  }),
  write_file: tool({
    description: "Write a file.", inputSchema: schema({ path: text, content: text }),
    execute: ({ path, content }) => { fs.writeFileSync(path, content); return "written"; }
  }),
};
const model = createOpenAICompatible({ name: "fairlead", baseURL: url + "/v1", apiKey: "any" })("tiny");
const messages = [];
for (const task of tasks) {
  messages.push({ role: "user", content: task });
  const said = await generateText({ model, messages, tools, stopWhen: stepCountIs(5), maxRetries: 5 });
  if (!said.text.includes("copied")) throw new Error(said.text);
  messages.push(...said.response.messages);
}
"""


def python(package: str, text: str, folder: Path) -> list[str]:
    """The command that runs a program of Python."""
    (folder / "app.py").write_text(text)
    return [str(python_with(package)), "app.py"]


def javascript(folder: Path) -> list[str]:
    """The command that runs the program of Vercel's AI SDK."""
    (folder / "app.mjs").write_text(AI_SDK)
    os.symlink(node_modules(), folder / "node_modules")
    return ["node", "app.mjs"]


def open_webui() -> list[str]:
    """The command that runs Open WebUI's backend, and its user."""
    program = python_with("open-webui").parent / "open-webui"
    return [sys.executable, open_webui_user.__file__, str(program), str(free_ports(1)[0])]


COMMANDS = {
    "openai-agents": lambda folder: python("openai-agents", OPENAI_AGENTS, folder),
    "langgraph": lambda folder: python("langgraph", LANGGRAPH, folder),
    "ai": javascript,
    "open-webui": lambda folder: open_webui(),
    "smolagents": lambda folder: python("smolagents", SMOLAGENTS, folder),
}
CODED = ("smolagents",)  # offer no tools: they run the code that the model writes
CALLERS = {"open-webui": {"authorization": f"Bearer {FRONT_KEY}", "x-fairlead-user": open_webui_user.USER}}


def copying(name: str, folder: Path, number: int) -> str:
    """Return the task of program `name` to copy file `number`, which this makes."""
    source, target = (str(folder / f"{word}-{number}.txt") for word in ("low", "high"))
    Path(source).write_text(f"high water: tide{number}\n")
    if name in CODED:
        steps = f"print(read_file({source!r}))", f"print(write_file({target!r}, '$FOUND'))", f"final_answer({LAST!r})"
        return task(*(f"<code>\n{step}\n</code>" for step in steps))
    return task(("read_file", {"path": source}), ("write_file", {"path": target, "content": "$FOUND"}), LAST)


@pytest.mark.parametrize("name", COMMANDS)
def test_applications_do_their_tasks(cluster: Cluster, tmp_path: Path, name: str) -> None:
    command, before, tasks = (
        COMMANDS[name](tmp_path),
        len(cluster.calls()),
        [copying(name, tmp_path, n) for n in (1, 2)],
    )
    cluster.fill(CALLERS.get(name, CALLER))
    with running([*command, cluster.url, *tasks], tmp_path, {"HOME": str(tmp_path)}):
        cluster.make_room()
        cluster.kill_worker()
    assert [(tmp_path / f"high-{number}.txt").read_text() for number in (1, 2)] == ["tide1", "tide2"]
    completed = cluster.completed(before)
    begun = completed[1:] if name in CODED else completed
    assert len({call["interaction"] for call in begun}) == 1, "the whole conversation is one interaction"
    assert begun[0]["interaction"]
    assert max(call["attempts"] for call in completed) == 2, "a call has gone on at the other worker"
