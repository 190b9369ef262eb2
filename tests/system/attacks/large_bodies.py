"""Bodies of 4 MiB of which a parser makes as much as it can, one for each field that holds lists or objects."""

import json
from collections.abc import Mapping
from functools import cache

from serving.rpc.channel import MAX_REQUEST_BYTES
from tests.unit.gateway.http.http_client import CHAT, COUNT, DETOKENIZE, MESSAGES, RESPONSES, TEXT, TOKENIZE

SPARE = 1024  # bytes that a field may need beside what fills it
CHAT_BEGIN = b'{"messages":[{"role":"user","content":"hello"}],"max_tokens":1,'
FUNCTION = b'"tools":[{"type":"function","function":{"name":"f",'
FORMAT = b'"response_format":{"type":"json_schema","json_schema":{"name":"s",'


def full(begin: bytes, unit: bytes, end: bytes) -> bytes:
    """Return a body of 4 MiB that repeats `unit`."""
    units = (MAX_REQUEST_BYTES - len(begin) - len(end) - SPARE) // (len(unit) + 1)
    return begin + b",".join([unit] * units) + end


def members(begin: bytes, value: str, end: bytes) -> bytes:
    """Return a body of about 4 MiB with an object of as many members as there is room for."""
    units = (MAX_REQUEST_BYTES - SPARE) // (len(value) + 12)
    return begin + ",".join(f'"1{number:06}":{value}' for number in range(units)).encode() + end


def chat(field: str, unit: bytes, wrap: str = "[]") -> tuple[str, bytes]:
    """Return a chat whose `field` is full."""
    return CHAT, full(CHAT_BEGIN + f'"{field}":{wrap[0]}'.encode(), unit, f"{wrap[1]}}}".encode())


def arguments(call: Mapping[str, object]) -> bytes:
    """Return `call`, within which a text of JSON becomes many lists."""
    text = "[" + "[]," * ((MAX_REQUEST_BYTES - SPARE) // 3) + "0]"
    return json.dumps({"messages": [{"role": "assistant", "tool_calls": [call]}]}).replace("FULL", text).encode()


@cache
def bodies() -> Mapping[str, tuple[str, bytes]]:
    """Return the path and the body of each, by its name: 140 MiB, which take two seconds to make."""
    return {
        "tool calls of a message": (
            CHAT,
            full(b'{"messages":[{"role":"assistant","tool_calls":[', b'{"function":{"name":"f"}}', b"]}]}"),
        ),
        "tools of a chat": chat("tools", b'{"type":"function","function":{"name":"f"}}'),
        "tools of Anthropic": (
            MESSAGES,
            full(b'{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[', b'{"name":"f"}', b"]}"),
        ),
        "tools of a response": (RESPONSES, full(b'{"input":"x","tools":[', b'{"type":"function","name":"f"}', b"]}")),
        "parameters of a tool": (
            CHAT,
            full(
                CHAT_BEGIN + b'"tools":[{"type":"function","function":{"name":"f","parameters":{"a":[', b"{}", b"]}}}]}"
            ),
        ),
        "a schema": (
            CHAT,
            members(
                CHAT_BEGIN + b'"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{',
                "{}",
                b"}}}}",
            ),
        ),
        "metadata": (CHAT, members(CHAT_BEGIN + b'"metadata":{', "1", b"}}")),
        "logit_bias": (CHAT, members(CHAT_BEGIN + b'"logit_bias":{', "1", b"}}")),
        "numbers near zero": chat("tool_choice", b"50e-325"),
        "numbers far from one": chat("tool_choice", b"1.7976931348623157e-300"),
        "numbers of many digits": chat("tool_choice", b"0." + b"0" * 307 + b"22250738585072011"),
        "integers of many digits": chat("tool_choice", b"9" * 4200),
        "biases near zero": (
            CHAT,
            members(CHAT_BEGIN + b'"logit_bias":{', "2.2250738585072011e-308", b"}}"),
        ),
        "chat_template_kwargs": chat("chat_template_kwargs", b"[]", "[]"),
        "variables of a template": (CHAT, full(CHAT_BEGIN + b'"chat_template_kwargs":{"a":[', b"[]", b"]}}")),
        "a call's input": (
            MESSAGES,
            full(
                b'{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{"a":[',
                b"[]",
                b"]}}]}]}",
            ),
        ),
        "a call's arguments": (CHAT, arguments({"function": {"name": "f", "arguments": "FULL"}})),
        "tool_choice": chat("tool_choice", b"[]"),
        "guided_choice": chat("guided_choice", b'""'),
        "stop": chat("stop", b'""'),
        "stop_token_ids": chat("stop_token_ids", b"1"),
        "documents": chat("documents", b"{}"),
        "an unknown field": chat("never_heard_of", b"[]"),
        "messages": (CHAT, full(b'{"messages":[', b'{"role":"user"}', b"]}")),
        "parts": (CHAT, full(b'{"messages":[{"role":"user","content":[', b'{"type":"text"}', b"]}]}")),
        "prompts": (TEXT, full(b'{"max_tokens":1,"prompt":[', b'""', b"]}")),
        "token ids": (TEXT, full(b'{"max_tokens":1,"prompt":[', b"1", b"]}")),
        "prompts of token ids": (TEXT, full(b'{"max_tokens":1,"prompt":[', b"[1]", b"]}")),
        "input items": (RESPONSES, full(b'{"input":[', b'{"role":"user"}', b"]}")),
        "tokens": (DETOKENIZE, full(b'{"tokens":[', b"1", b"]}")),
        "tokenized tools": (TOKENIZE, full(b'{"messages":[],"tools":[', b'{"type":"function"}', b"]}")),
        "counted messages": (COUNT, full(b'{"messages":[', b'{"role":"user","content":""}', b"]}")),
        "a text": (TEXT, full(b'{"max_tokens":1,"prompt":"', b"x", b'"}')),
        "quotation marks": (CHAT, b'"' * (MAX_REQUEST_BYTES - SPARE)),
        "depth": (CHAT, b"[" * (MAX_REQUEST_BYTES - SPARE)),
    }
