"""Requests as a fuzzer makes them: known fields with values that fit, nearly fit, or are anything at all."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gateway.http.chat_completions import ChatCompletionRequest
from gateway.http.completions import HARMLESS_TOOLS, CompletionRequest, UnsupportedByCompletions
from gateway.http.messages import Conversation, MessagesRequest, UnsupportedByMessages
from gateway.http.parameters import HARMLESS, Unsupported
from gateway.http.responses_request import HARMLESS as HARMLESS_RESPONSES
from gateway.http.responses_request import ResponsesRequest, UnsupportedByResponses
from gateway.http.tokens import HARMLESS as HARMLESS_TOKENIZE
from gateway.http.tokens import DetokenizeRequest, TokenizeRequest, UnsupportedByTokenize
from tests.unit.gateway.http.http_client import (
    CHAT,
    COUNT,
    DETOKENIZE,
    HELLO,
    INPUT_TOKENS,
    MESSAGES,
    MODELS,
    RESPONSES,
    TEXT,
    TOKENIZE,
)

HUGE = [2**31, 2**32, 2**63, 2**64, 2**64 + 1, 10**400, -(2**63) - 1, -(10**400)]
NUMBERS = st.integers(-2, 3) | st.floats() | st.sampled_from(HUGE)
WORDS = st.text(st.characters(), max_size=8)  # also halves of surrogate pairs, and zeros
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
PART_TYPES = [
    "text",
    "image_url",
    "tool_use",
    "tool_result",
    "thinking",
    "server_tool_use",
    "input_text",
    "output_text",
]
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(PART_TYPES) | ANYTHING,
        "text": WORDS,
        "name": WORDS,
        "input": st.just({}) | ANYTHING,
        "id": WORDS | st.none(),
        "tool_use_id": WORDS | st.none(),
        "cache_control": ANYTHING,
        "content": WORDS | ANYTHING,
    },
)
SCHEMAS = st.sampled_from([{}, {"type": "object", "properties": {"a": {}}}]) | ANYTHING
NAMES_OF_TOOLS = st.just("f") | WORDS
FUNCTION = {"parameters": SCHEMAS, "description": WORDS}
FUNCTIONS = st.fixed_dictionaries({"name": NAMES_OF_TOOLS}, optional=FUNCTION) | ANYTHING
TYPES_OF_TOOLS = st.sampled_from(["function", "custom", "namespace", "web_search", "local_shell", None]) | ANYTHING
RULES = st.fixed_dictionaries({}, optional={"type": WORDS, "syntax": WORDS, "definition": WORDS}) | ANYTHING
RESPONSE_TOOLS = st.recursive(
    st.fixed_dictionaries(
        {"type": TYPES_OF_TOOLS, "name": NAMES_OF_TOOLS},
        optional={**FUNCTION, "format": RULES, "strict": st.booleans()},
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("namespace"), "name": NAMES_OF_TOOLS, "tools": st.lists(inner, max_size=2)}
    ),
    max_leaves=4,
)
TOOLS = st.lists(
    st.fixed_dictionaries({"type": TYPES_OF_TOOLS, "function": FUNCTIONS, "custom": FUNCTIONS})
    | st.fixed_dictionaries({"name": NAMES_OF_TOOLS}, optional={"type": TYPES_OF_TOOLS, "input_schema": SCHEMAS})
    | RESPONSE_TOOLS
    | ANYTHING,
    max_size=3,
)
ARGUMENTS: SearchStrategy[Any] = (
    st.sampled_from(["{}", '{"a": "\\ud83d"}', '{"a": "b\n', "null", "[]", {}, None]) | WORDS | ANYTHING
)
CHOICES = st.sampled_from(
    [
        "auto",
        "none",
        "required",
        {"type": "auto"},
        {"type": "any"},
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "f"},
        {"type": "tool", "name": "f", "disable_parallel_tool_use": None},
        {"type": "web_search"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
    ]
)
LEVELS = st.sampled_from(["none", "low", "medium", "high", "xhigh"]) | WORDS | ANYTHING
CALLS = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({"name": st.just("f") | WORDS, "arguments": ARGUMENTS})},
        optional={"id": WORDS | st.none(), "type": st.just("function") | st.none()},
    )
    | ANYTHING,
    max_size=2,
)
TYPES_OF_ITEMS = [
    "function_call",
    "function_call_output",
    "reasoning",
    "custom_tool_call",
    "custom_tool_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "web_search_call",
    "tool_search_call",
    "tool_search_output",
    "apply_patch_call",
    "mcp_list_tools",
    "mcp_approval_response",
    "compaction",
    "_call",
    "_output",
    "item_reference",
]
CALL_ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES_OF_ITEMS)},
    optional={
        "call_id": st.just("c") | WORDS | st.none(),
        "id": WORDS,
        "name": st.just("f") | st.none(),
        "namespace": WORDS | st.none(),
        "arguments": ARGUMENTS,
        "input": ARGUMENTS,
        "action": ARGUMENTS,
        "output": WORDS | st.lists(PARTS, max_size=2) | ANYTHING,
    },
)
TURNS = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "robot"]) | ANYTHING},
    optional={
        "content": WORDS | st.lists(PARTS | ANYTHING, max_size=3) | ANYTHING,
        "tool_calls": CALLS,
        "tool_call_id": WORDS,
    },
)
TOKENS = st.lists(st.integers(0, 300), max_size=5)
STREAM_OPTIONS = {"include_usage": st.booleans() | ANYTHING, "continuous_usage_stats": st.booleans() | ANYTHING}
# Values that may fit. Those that do are small, so that few requests cost more than a few tokens.
FITTING: Mapping[str, SearchStrategy[Any]] = {
    "messages": st.lists(TURNS | ANYTHING, max_size=3),
    "prompt": WORDS | TOKENS | st.lists(WORDS, max_size=3) | st.lists(TOKENS, max_size=3) | st.lists(ANYTHING),
    "input": WORDS | st.lists(TURNS | CALL_ITEMS | ANYTHING, max_size=3),
    "conversation": st.sampled_from(["conv_none", {"id": "conv_none"}]) | ANYTHING,
    "tools": TOOLS,
    "tool_choice": CHOICES | ANYTHING,
    "reasoning_effort": LEVELS,
    "verbosity": LEVELS,
    "enable_thinking": st.booleans() | ANYTHING,
    "think": st.booleans() | LEVELS,
    "reasoning": st.fixed_dictionaries({}, optional={"effort": LEVELS, "summary": LEVELS, "unheard_of": ANYTHING}),
    "text": st.fixed_dictionaries({}, optional={"verbosity": LEVELS, "format": st.just({"type": "text"}) | ANYTHING}),
    "truncation": st.sampled_from(["auto", "disabled"]) | WORDS,
    "include": st.lists(st.just("reasoning.encrypted_content") | WORDS, max_size=2),
    "thinking": st.fixed_dictionaries(
        {}, optional={"type": st.sampled_from(["adaptive", "enabled", "disabled"]) | WORDS, "budget_tokens": NUMBERS}
    ),
    "context_management": st.fixed_dictionaries({"edits": st.lists(st.fixed_dictionaries({"type": WORDS}) | ANYTHING)}),
    "output_config": st.fixed_dictionaries({}, optional={"effort": LEVELS, "task_budget": ANYTHING}),
    "cache_control": ANYTHING,
    "betas": st.lists(WORDS, max_size=2),
    "parallel_tool_calls": st.booleans(),
    "instructions": WORDS,
    "n": st.sampled_from([1, 2, 3, 129]),
    "max_tokens": st.integers(0, 3) | st.just(5000),
    "max_completion_tokens": st.integers(0, 3) | st.just(5000),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({}, optional=STREAM_OPTIONS),
    "system": WORDS | st.lists(PARTS, max_size=2),
    "stop_sequences": st.lists(WORDS, max_size=3),
    "stop": WORDS | st.lists(WORDS, max_size=20),
    "stop_token_ids": TOKENS,
    "tokens": TOKENS,
    "add_special_tokens": st.booleans(),
    "echo": st.booleans(),
    "logprobs": st.booleans() | st.integers(0, 21),
    "top_logprobs": st.integers(0, 21),
    "logit_bias": st.dictionaries(st.integers(0, 300).map(str) | WORDS, st.floats(-101, 101), max_size=3),
    "ignore_eos": st.booleans(),
    "continue_final_message": st.booleans(),
    "add_generation_prompt": st.booleans(),
    "chat_template_kwargs": st.dictionaries(WORDS, ANYTHING, max_size=3),
    "model": st.sampled_from(["tiny", "none"]) | WORDS,
    "user": WORDS,
    "prompt_cache_key": WORDS,
    "metadata": st.fixed_dictionaries({"user_id": WORDS | WORDS.map(lambda word: json.dumps({"session_id": word}))}),
}
UNSUPPORTED = {
    name: st.sampled_from([None, *harmless.get(name, ())])
    for kind, harmless in (
        (UnsupportedByTokenize, HARMLESS_TOKENIZE),
        (UnsupportedByMessages, {}),
        (UnsupportedByResponses, HARMLESS_RESPONSES),
        (Unsupported, HARMLESS),
        (UnsupportedByCompletions, HARMLESS_TOOLS),
    )
    for name in kind.__annotations__
}
RATHER = st.sampled_from([None, 1, 1, 0.5])  # of the other fields, which are numbers
KNOWN = {
    CHAT: ChatCompletionRequest.__struct_fields__,
    TEXT: CompletionRequest.__struct_fields__,
    MESSAGES: MessagesRequest.__struct_fields__,
    RESPONSES: ResponsesRequest.__struct_fields__,
    TOKENIZE: TokenizeRequest.__struct_fields__,
    DETOKENIZE: DetokenizeRequest.__struct_fields__,
    COUNT: Conversation.__struct_fields__,
    INPUT_TOKENS: ResponsesRequest.__struct_fields__,
}
BASE: Mapping[str, Sequence[tuple[str, Any]]] = {
    CHAT: [("messages", HELLO), ("max_tokens", 2)],
    TEXT: [("prompt", "hello"), ("max_tokens", 2)],
    MESSAGES: [("messages", HELLO), ("max_tokens", 2)],
    RESPONSES: [("input", "hello"), ("max_output_tokens", 2)],
    TOKENIZE: [("prompt", "hello")],
    DETOKENIZE: [("tokens", [104])],
    COUNT: [("messages", HELLO)],
    INPUT_TOKENS: [("input", "hello")],
}
NOISE = st.sampled_from(
    [b"", b"\xff", b"\xed\xa0\x80", b"\x00", b"\\ud800", b"[" * 5000, b'{"a":' * 5000, b"1e999", b'"']
)
NAMES = ["app", "interaction", "streaming", "user"]
HEADERS = st.dictionaries(
    st.sampled_from([f"x-fairlead-{name}" for name in NAMES])
    | st.sampled_from(["x-session-id", "x-parent-session-id", "traceparent", "x-request-id", "authorization"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=12)
    | st.sampled_from(["a;token=AAAA", "a;end", "a;token=*", ";;", "each_token"]),
    max_size=2,
)


METHODS = st.sampled_from(["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"])
SEGMENTS = WORDS.map(lambda word: quote_from_bytes(word.encode(errors="surrogatepass"), safe="")) | st.just("tiny")
PATHS = (
    st.sampled_from([*KNOWN, MODELS, "/health", "/version", "/metrics", "/", "//", "/v1", "*"])
    | st.builds("{}/{}".format, st.sampled_from([*KNOWN, MODELS, MODELS, "/v1", ""]), SEGMENTS)
    | st.builds("{}?{}={}".format, st.sampled_from([*KNOWN, MODELS]), SEGMENTS, SEGMENTS)
)


class Sent(NamedTuple):
    """A request to send."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]


def value_of(field: str) -> SearchStrategy[Any]:
    """Values of one field; of five, three may fit."""
    fitting = {**UNSUPPORTED, **FITTING}.get(field, RATHER)
    return st.integers(0, 4).flatmap(lambda kind: (NUMBERS, ANYTHING, *[fitting] * 3)[kind])


def field_of(path: str) -> SearchStrategy[tuple[str, Any]]:
    """A field that the path knows, and a value for it."""
    known = st.sampled_from(KNOWN[path]).flatmap(lambda name: st.tuples(st.just(name), value_of(name)))
    return st.integers(0, 9).flatmap(lambda kind: known if kind else st.tuples(WORDS, ANYTHING))


@st.composite
def posts(draw: st.DrawFn) -> Sent:
    """Draw a request that would be answered, but for fields that are doubled or added, and sometimes broken bytes."""
    path = draw(st.sampled_from(sorted(KNOWN)))
    fields = [*BASE[path], *draw(st.lists(field_of(path), max_size=3))]
    body = b"{%s}" % b",".join(f"{json.dumps(name)}:{json.dumps(value)}".encode() for name, value in fields)
    kind = draw(st.integers(0, 19))
    if kind == 0:
        body = json.dumps(draw(ANYTHING)).encode()
    elif kind == 1:
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(NOISE) + body[at + draw(st.integers(0, 3)) :]
    elif kind == 2:
        body = draw(st.binary(max_size=40))
    return Sent("POST", path, body, draw(HEADERS) if kind == 3 else {})


def requests() -> SearchStrategy[Sent]:
    """Requests, three of four of them posts to a path that there is; the others go anywhere, by any method."""
    anywhere = st.builds(Sent, METHODS | st.just("GET"), PATHS, st.sampled_from([b"", b"{}"]), HEADERS)
    return st.integers(0, 3).flatmap(lambda kind: posts() if kind else anywhere)
