"""Open WebUI's backend, whose one user talks with it as the browser does: `open_webui.py PROGRAM PORT URL TASK...`.

A tool of its own copies files. A message that is refused is sent again, as a person would. The settings are those of
docs/agents.md.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

USER = "ann@example.com"
SETTINGS: Mapping[str, str] = {
    "USE_SLIM_DOCKER": "true",  # without models for search and speech
    "OFFLINE_MODE": "true",
    "ENABLE_OLLAMA_API": "false",
    "WEBUI_SECRET_KEY": "any",
    "ENABLE_FORWARD_USER_INFO_HEADERS": "true",
    "FORWARD_USER_INFO_HEADER_USER_EMAIL": "x-fairlead-user",
    "OPENAI_API_KEY": "front",
}
TOOL = '''
import pathlib

class Tools:
    def read_file(self, path: str) -> str:
        """Read a file."""
        return pathlib.Path(path).read_text()

    def write_file(self, path: str, content: str) -> str:
        """Write a file."""
        pathlib.Path(path).write_text(content)
        return "written"
'''
PAUSE = 0.1  # seconds between two questions


class Backend:
    """A backend that is running, and its user's chat."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._headers = {"content-type": "application/json"}
        self._chat: str | None = None
        self._answer: str | None = None  # the id of the last one
        self._messages: list[dict[str, Any]] = []

    def sign_up(self) -> None:
        """Make the first user, who administers."""
        user = self._ask("/api/v1/auths/signup", {"name": "ann", "email": USER, "password": "low-water-1"})
        self._headers["authorization"] = f"Bearer {user['token']}"

    def install_tool(self) -> None:
        """Make the tool known, as its editor does."""
        tool = {"id": "files", "name": "files", "content": TOOL, "meta": {"description": "Files."}}
        self._ask("/api/v1/tools/create", tool)

    def models(self) -> list[str]:
        """The names of the models that a user may choose."""
        return [model["id"] for model in self._ask("/api/models")["data"]]

    def say(self, text: str) -> str:
        """Add a message to the chat until it is answered, and return the answer."""
        while "error" in (answer := self._said(text)):
            time.sleep(PAUSE)
        self._answer = answer["id"]
        self._messages += [{"role": "user", "content": text}, {"role": "assistant", "content": answer["content"]}]
        content: str = answer["content"]
        return content

    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            self._ask("/health")
        except urllib.error.URLError:
            return False
        return True

    def _said(self, text: str) -> dict[str, Any]:
        message, answer = str(uuid.uuid4()), str(uuid.uuid4())
        begun = self._ask(
            "/api/chat/completions",
            {
                "model": "tiny",
                "stream": True,
                "messages": [*self._messages, {"role": "user", "content": text}],
                "tool_ids": ["files"],
                "session_id": "browser",
                "id": answer,
                "parent_id": self._answer,
                "user_message": {"id": message, "parentId": self._answer, "role": "user", "content": text},
                "background_tasks": {"title_generation": True},
                **({"chat_id": self._chat} if self._chat else {}),
            },
        )
        self._chat = begun["chat_id"]
        while True:
            found = self._ask(f"/api/v1/chats/{self._chat}")["chat"]["history"]["messages"].get(answer, {})
            if found.get("done") or "error" in found:
                return found
            time.sleep(PAUSE)

    def _ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self._url + path, data, self._headers)) as answer:
            return json.load(answer)


def main(program: str, port: str, url: str, *tasks: str) -> None:
    """Have the backend do the tasks in one chat."""
    settings = {**SETTINGS, "OPENAI_API_BASE_URL": f"{url}/v1", "DATA_DIR": "data", "STATIC_DIR": "static"}
    with subprocess.Popen(
        [program, "serve", "--host", "127.0.0.1", "--port", port], env={**os.environ, **settings}
    ) as process:
        try:
            backend = Backend(f"http://127.0.0.1:{port}")
            while not backend.is_up():
                assert process.poll() is None
                time.sleep(PAUSE)
            backend.sign_up()
            backend.install_tool()
            assert backend.models() == ["tiny"]
            for task in tasks:
                assert "copied" in backend.say(task)
        finally:
            process.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
