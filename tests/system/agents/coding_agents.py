"""Coding agents: how each is started without a terminal, and the calls by which it copies a file.

docs/agents.md tells users of the same settings. In commands, environments and files, $URL is the gateway's, $HOME the
agent's home, $FOLDER its working directory and $TASK what it is to do.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MODEL = "tiny"
Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Agent:
    """A program, the arguments of its first start and those by which the next one continues the session."""

    package: str  # of npm, or of PyPI
    first: tuple[str, ...]
    again: tuple[str, ...]
    copies: tuple[Call, ...]  # copy what is in $SOURCE to $TARGET
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # texts by path, beside the file in $FOLDER that it reads
    edit: str = ""  # by which a program without tools writes $TARGET: what its answer begins with


CODEX = """
model = "tiny"
model_provider = "fairlead"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.fairlead]
name = "Fairlead"
base_url = "$URL/v1"
wire_api = "responses"
env_key = "FAIRLEAD_API_KEY"
"""
OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "model": "fairlead/tiny",
    "small_model": "fairlead/tiny",
    "provider": {
        "fairlead": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "$URL/v1", "apiKey": "any"},
            "models": {"tiny": {}},
        }
    },
}
QWEN = {"privacy": {"usageStatisticsEnabled": False}, "general": {"enableAutoUpdate": False}}
CONTINUE = """
name: fairlead
version: 1.0.0
schema: v1
models:
  - {name: tiny, provider: openai, model: tiny, apiBase: $URL/v1, apiKey: any, capabilities: [tool_use], roles: [chat]}
"""

AIDER = (
    *("--model", "openai/tiny", "--edit-format", "whole", "--yes-always", "--no-git", "--no-analytics"),
    *("--no-check-update", "--no-show-release-notes", "--no-show-model-warnings"),
)

AGENTS = {
    "claude": Agent(
        "@anthropic-ai/claude-code",
        ("-p", "$TASK", "--allowedTools", "Read", "Write"),
        ("-c", "-p", "$TASK", "--allowedTools", "Read", "Write"),
        (
            ("Read", {"file_path": "$FOLDER/$SOURCE"}),
            ("Write", {"file_path": "$FOLDER/$TARGET", "content": "$FOUND"}),
        ),
        {
            "ANTHROPIC_BASE_URL": "$URL",
            "ANTHROPIC_AUTH_TOKEN": "any",
            "ANTHROPIC_MODEL": MODEL,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    ),
    "codex": Agent(
        "@openai/codex",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "$TASK"),
        ("exec", "resume", "--last", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "$TASK"),
        (
            ("exec_command", {"cmd": "cat $SOURCE"}),
            ("exec_command", {"cmd": "printf $FOUND > $TARGET"}),
        ),
        {"FAIRLEAD_API_KEY": "any"},
        {"$HOME/.codex/config.toml": CODEX},
    ),
    "opencode": Agent(
        "opencode-ai",
        ("run", "--auto", "$TASK"),
        ("run", "--auto", "--continue", "$TASK"),
        (
            ("read", {"filePath": "$FOLDER/$SOURCE"}),
            ("write", {"filePath": "$FOLDER/$TARGET", "content": "$FOUND"}),
        ),
        {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"},
        {"$FOLDER/opencode.json": json.dumps(OPENCODE)},
    ),
    "qwen": Agent(
        "@qwen-code/qwen-code",
        ("--auth-type", "openai", "--yolo", "$TASK"),
        ("--auth-type", "openai", "--yolo", "--continue", "$TASK"),
        (
            ("read_file", {"file_path": "$FOLDER/$SOURCE"}),
            ("write_file", {"file_path": "$FOLDER/$TARGET", "content": "$FOUND"}),
        ),
        {"OPENAI_BASE_URL": "$URL/v1", "OPENAI_API_KEY": "any", "OPENAI_MODEL": MODEL},
        {"$HOME/.qwen/settings.json": json.dumps(QWEN)},
    ),
    "cn": Agent(
        "@continuedev/cli",
        ("--config", "$HOME/config.yaml", "--auto", "-p", "$TASK"),
        ("--config", "$HOME/config.yaml", "--auto", "--resume", "-p", "$TASK"),
        (
            ("Read", {"filepath": "$FOLDER/$SOURCE"}),
            ("Write", {"filepath": "$FOLDER/$TARGET", "content": "$FOUND"}),
        ),
        {"CONTINUE_TELEMETRY_ENABLED": "0"},
        {"$HOME/config.yaml": CONTINUE},
    ),
    "aider": Agent(
        "aider-chat",
        (*AIDER, "low-1.txt", "--message", "$TASK"),
        (*AIDER, "low-2.txt", "--restore-chat-history", "--message", "$TASK"),
        (),
        {"OPENAI_API_BASE": "$URL/v1", "OPENAI_API_KEY": "any", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        edit="$TARGET\n```\n$FOUND\n```\n",
    ),
}
