"""Response templates of families of models whose tokenizers may ship none.

They follow what the chat templates render: of gpt-oss, whose format is Harmony, of DeepSeek V3 and R1, and of Kimi K2.
"""

from collections.abc import Mapping
from typing import Any

NAMED_CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THOUGHT = {"open": "<think>", "close": "</think>"}
HARMONY = {
    "start_anchor": "<|start|>assistant",
    "fields": {
        "reasoning_content": {
            "open_pattern": r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>",
            "close": "<|end|>",
        },
        "tool_calls": {
            "open_pattern": r"(?:<\|start\|>assistant)?(?:<\|channel\|>(?:commentary|analysis))?\s?"
            r"to=functions\.(?P<name>[\w.\-]+)(?:<\|channel\|>(?:commentary|analysis))?\s?"
            r"(?:<\|constrain\|>)?(?:json|code)?<\|message\|>",
            "close": ["<|call|>", "<|end|>"],
            "content": "json",
            "transform": NAMED_CALL,
        },
        # The channels `final` and `commentary`, the latter before calls, are what is said.
        "header": {"open_pattern": r"(?:<\|start\|>assistant)?<\|channel\|>", "close": "<|message|>"},
        "content": {"close": ["<|end|>", "<|return|>"]},
    },
}
DEEPSEEK = {
    "start_anchor": "<｜Assistant｜>",
    "fields": {
        "reasoning_content": THOUGHT,
        "tool_calls": {
            "open_pattern": r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>\s*(?:function<｜tool▁sep｜>)?"
            r"(?P<name>[\w.\-]+)\s*(?:<｜tool▁sep｜>|```json\n)",
            "close_pattern": r"<｜tool▁call▁end｜>(?:\s*<｜tool▁calls▁end｜>)?",
            "content": "json",
            "transform": NAMED_CALL,
        },
        "content": {"close": "<｜end▁of▁sentence｜>"},
    },
}
KIMI = {
    "start_anchor": "<|im_assistant|>assistant<|im_middle|>",
    "fields": {
        "reasoning_content": THOUGHT,
        "tool_calls": {
            "open_pattern": r"(?:<\|tool_calls_section_begin\|>\s*)?<\|tool_call_begin\|>\s*(?:functions\.)?"
            r"(?P<name>[\w.\-]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>",
            "close_pattern": r"<\|tool_call_end\|>(?:\s*<\|tool_calls_section_end\|>)?",
            "content": "json",
            "transform": NAMED_CALL,
        },
        "content": {"close": "<|im_end|>"},
    },
}
# By a mark of the chat templates that write calls so.
KNOWN: Mapping[str, Mapping[str, Any]] = {
    "<|channel|>final<|message|>": HARMONY,
    "<｜tool▁calls▁begin｜>": DEEPSEEK,
    "<|tool_calls_section_begin|>": KIMI,
}


def known_response(chat_template: str) -> Mapping[str, Any] | None:
    """Return the response template of the family whose calls `chat_template` writes, None if it is not known."""
    return next((known for mark, known in KNOWN.items() if mark in chat_template), None)
