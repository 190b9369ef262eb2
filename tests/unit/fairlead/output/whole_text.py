"""A naive parser of whole outputs: it looks at one character after the other, and has all of them at hand."""

import json
import re
from typing import Any, NamedTuple

SPACE = 32
HEAD = 512
HELD = 8192
STRING = r'"(?:\\.|[^"\\])*"'
CALL = re.compile(
    r'\{\s*(?:"(?:id|type)"\s*:\s*' + STRING + r'\s*,\s*)*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:'
    r"\s*(?=\{)",
    re.DOTALL,
)
ARGUMENTS = ("arguments", "parameters", "args", "params", "input")
LOOSE = rf"""\{{\s*["'](?:name|type|id|function|{"|".join(ARGUMENTS)})["']"""
MARKED = ("hermes", "qwen_coder", "glm")
CALL_HEAD = r'\s*(?:\{\s*"name"\s*:\s*"([^"\\]+)"|<function=([^<>\s]+)>|([\w.\-]+)\s*(?:<arg_key>|</tool_call>))'
WORDS = {"True": "true", "False": "false", "None": "null"}
MARK = r"\\.|True|False|None|."
ESCAPES = {"'": "'", **{letter: f"\\{letter}" for letter in '"\\/bfnrtu'}}
TOOLS = ("f", "weather", "clock")
LEADS = {"hermes": r"(?:[\s\[,]|\{(?=\s*\{))*", "llama": r"[\s;,\[]*", "mistral": r"[\s\[,]*"}
NAMED = r"\s*([\w.\-]+)\s*(?:\[CALL_ID\]\s*\w*\s*)?(\[ARGS\])?\s*(?=\{)"
XML_HEADS = {
    "qwen_coder": r"""\s*<function(?:=| name=)["']?([^<>\s"']+)["']?>""",
    "glm": r"\s*([\w.\-]+)\s*(?=<arg_key>|</tool_call>)",
}
BARE = r"""["']?([^<>\s"']+)["']?>(?=\s*(?:<parameter=|</function>|\{))"""
XML_KEYS = {
    "qwen_coder": r"""\s*<parameter(?:=| name=)["']?([^<>\n"']+)["']?>\n?""",
    "glm": r"\s*<arg_key>\s*([^<>\s]+)\s*</arg_key>\s*<arg_value>",
}
XML_VALUE_ENDS = {
    "qwen_coder": r"\n?</parameter>|\n(?=<parameter=[^<>\n]+>\n)|\n?(?=</function>\s*</tool_call>)",
    "glm": r"</arg_value>|\n?(?=<arg_key>[^<>\n]+</arg_key>\s*<arg_value>)",
}
XML_CLOSINGS = {"qwen_coder": "</function>", "glm": ""}
MARKERS = {"hermes": ("<tool_call>", ("}", "]", "```", "</tool_call>")), "mistral": ("[TOOL_CALLS]", ("]",))}


class Parsed(NamedTuple):
    """What an output is made of, and where its text stands among its calls."""

    reasoning: str
    parts: list[tuple[str, ...]]  # ("text", text) or ("call", name, arguments)


def parse(text: str, tool_calls: str, reasoning: str, in_reasoning: bool) -> Parsed:
    thought = ""
    if reasoning:
        begun = text.lstrip()
        begins = begun.startswith("<think>") and len(text) - len(begun) <= SPACE
        if begins or in_reasoning:
            inner = begun.removeprefix("<think>") if begins else text
            inner = inner.lstrip()
            at, end = reasoning_end(inner, tool_calls)
            is_over = end <= len(inner)
            thought, text = (shortened(inner[:at]), inner[end:].lstrip()) if is_over else (inner, "")
    parts: list[tuple[str, ...]] = []
    if tool_calls == "llama":
        tag = re.match(r"\s*<\|python_tag\|>", text)
        after = calls_at(text[tag.end() :] if tag else text, tool_calls, parts)
        text = after.lstrip().removeprefix("]").lstrip() if parts else text
    elif tool_calls in XML_HEADS:
        text = elements(text, tool_calls, parts)
    elif tool_calls:
        text = marked(text, tool_calls, parts)
    return Parsed(thought, joined([*parts, ("text", text)]))


def reasoning_end(text: str, kind: str) -> tuple[int, int]:
    """Return where the reasoning ends, and where the answer begins, beyond the text if it does not."""
    for found in re.finditer("</think>|<tool_call>", text):
        if found[0] == "</think>":
            return found.span()
        head = re.match(CALL_HEAD, text[found.end() :][:HEAD])
        is_last = "</think>" not in text[found.end() :][:HELD]
        if is_last and kind in MARKED and head and any(name in TOOLS for name in head.groups()):
            return found.start(), found.start()
    return len(text), len(text) + 1


def marked(text: str, kind: str, parts: list[tuple[str, ...]]) -> str:
    """Take what stands before markers and behind them; return the text behind the last one."""
    begin, ends = MARKERS[kind]
    while begin in text:
        before, _, after = text.partition(begin)
        known = len(parts)
        named = re.match(NAMED, after[:HEAD]) if kind == "mistral" else None
        if named is not None and (named[2] or named[1] in TOOLS):
            closed = balanced(after, named.end(), [])
            parts += [("text", shortened(before)), ("call", named[1], escaped(after[named.end() : closed]))]
            text = after[closed:].lstrip()
            continue
        fence = re.match(r"\s*```\w*", after[:HEAD]) if kind == "hermes" else None
        after = after[fence.end() :] if fence else after
        text = calls_at(after, kind, parts)
        head = re.match(XML_HEADS["qwen_coder"], after[:HEAD]) if kind == "hermes" else None
        if len(parts) == known and head is not None and head[1] in TOOLS:
            call, text = element(head[1], after[head.end() :], "qwen_coder")
            parts.append(call)
        if len(parts) == known:
            parts.append(("text", before + begin + (fence[0] if fence else "")))
            text = after
            continue
        parts.insert(known, ("text", shortened(before)))
        for end in ends:
            text = text.lstrip().removeprefix(end)
        text = text.lstrip()
    return text


def elements(text: str, kind: str, parts: list[tuple[str, ...]]) -> str:
    """Take calls whose arguments are elements, and the text before each; return the text behind the last one."""
    while found := re.search("<tool_call>|<function=" if kind == "qwen_coder" else "<tool_call>", text):
        before, marker, text = text[: found.start()], found[0], text[found.end() :]
        head = re.match(XML_HEADS[kind] if marker == "<tool_call>" else BARE, text[:HEAD])
        at = len(text) - len(text.lstrip())
        loose = loose_at(text, at) if head is None and marker == "<tool_call>" and at <= HEAD else None
        if loose is not None:
            call, text = loose[0], text[loose[1] :]
        elif head is None or (marker != "<tool_call>" and head[1] not in TOOLS):
            parts.append(("text", before + marker))
            continue
        else:
            call, text = element(head[1], text[head.end() :], kind)
        parts += [("text", shortened(before)), call]
        text = text.lstrip().removeprefix("</tool_call>").lstrip()
    return text


def element(name: str, text: str, kind: str) -> tuple[tuple[str, str, str], str]:
    """Return the call of `name` whose arguments `text` begins with, and what follows."""
    if text.lstrip().startswith("{"):
        text = text.lstrip()
        end = balanced(text, 0, [])
        return ("call", name, escaped(text[:end])), text[end:].lstrip().removeprefix(XML_CLOSINGS[kind])
    written: list[str] = []
    is_whole = True
    while is_whole and (key := re.match(XML_KEYS[kind], text[:HEAD])):
        value = text[key.end() :]
        found = re.search(XML_VALUE_ENDS[kind], value)
        is_whole = found is not None
        value, text = (value[: found.start()], value[found.end() :]) if found else (value, "")
        written.append(f"{json.dumps(key[1], ensure_ascii=False)}: ")
        if key[1] != "number":
            written[-1] += json.dumps(value, ensure_ascii=False)[: None if is_whole else -1]
        elif is_whole:
            written[-1] += value if re.fullmatch("[0-9]+", value) else json.dumps(value, ensure_ascii=False)
    closed = bool(text.strip()) and is_whole
    opened = "{" if written or closed else ""
    call = ("call", name, opened + ", ".join(written) + ("}" if closed else ""))
    return call, text.lstrip().removeprefix(XML_CLOSINGS[kind])


def calls_at(text: str, kind: str, parts: list[tuple[str, ...]]) -> str:
    """Take the calls with which `text` begins; return what follows."""
    while True:
        lead = re.match(LEADS[kind], text)
        assert lead is not None
        call = CALL.match(text, lead.end())
        is_short = call is not None and call.end() <= HEAD and lead.end() <= HEAD
        if call is None or not is_short:
            loose = loose_at(text, lead.end()) if lead.end() <= HEAD else None
            if loose is None:
                return text
            parts.append(loose[0])
            text = text[loose[1] :].lstrip()
            continue
        end = balanced(text, call.end(), [])
        parts.append(("call", call[1], escaped(text[call.end() : end])))
        text = text[end:].lstrip()
        if text.startswith("}"):
            text = text[1:]
        elif text.startswith(","):
            text = text[balanced(text, 0, ["}"]) :]
        text = text.lstrip()


def loose_at(text: str, begin: int) -> tuple[tuple[str, str, str], int] | None:
    """Return the call of a tool at `begin` that is written otherwise, and where it ends."""
    if re.match(LOOSE, text[begin:]) is None:
        return None
    end = balanced(text, begin, [])
    try:
        value = value_of(text[begin:end])
        function = value["function"] if isinstance(value.get("function"), dict) else value
        name = function["name"] if "name" in function else function["function"]
        named = [key for key in ARGUMENTS if key in function]
        if not named and {*function} - {"name", "function", "type", "id", "index"}:
            return None
        arguments = function[named[0]] if named else None
        if isinstance(arguments, str):
            arguments = value_of(arguments) if arguments.strip() else None
    except (ValueError, KeyError, SyntaxError, TypeError):
        return None
    arguments = {} if arguments in (None, []) else arguments
    if not isinstance(name, str) or name not in TOOLS or not isinstance(arguments, dict):
        return None
    return ("call", name, json.dumps(arguments, ensure_ascii=False)), end


def value_of(text: str) -> Any:
    """Return the value of JSON, or of what becomes JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(escaped(text))


def escaped(arguments: str) -> str:
    """Write as JSON what is nearly so, one mark after the other."""
    written, quote = "", ""
    while arguments:
        mark = re.match(MARK, arguments, re.DOTALL)[0]  # type: ignore[index]
        arguments = arguments[len(mark) :]
        if not quote:
            quote = mark if mark in "\"'" else ""
            written += '"' if quote else WORDS.get(mark, mark)
            written = re.sub(r",(?=\s{0,32}[}\]]$)", "", written) if mark in "]}" else written
        elif mark == quote:
            written, quote = written + '"', ""
        elif len(mark) == 2 and mark[0] == "\\":
            written += "\\u00" if mark + quote == "\\x'" else ESCAPES.get(mark[1], "\\\\" + control(mark[1]))
        else:  # a backslash at the end is half of an escape
            written += mark if mark == "\\" else control(mark)
    return written


def control(letters: str) -> str:
    return json.dumps(letters, ensure_ascii=False)[1:-1]


def balanced(text: str, at: int, closing: list[str]) -> int:
    """Return where the brackets that are open at `at` are closed, or the first character that is no JSON."""
    while at < len(text):
        mark = text[at]
        if mark == '"' or (mark == "'" and re.search(r"[{\[,:]\s*$", text[:at])):
            string = re.compile(STRING.replace('"', mark), re.DOTALL).match(text, at)
            if string is None:
                return len(text)
            at = string.end()
            continue
        if mark in "{[":
            closing.append("}" if mark == "{" else "]")
        elif mark in "}]":
            if closing.pop() != mark:
                return at
            if not closing:
                return at + 1
        elif not re.match(r"[\s,:+\-.0-9A-Za-z]", mark):
            return at
        at += 1
    return at


def shortened(text: str) -> str:
    """Return `text` without the white space at its end, of which so much counts as belongs to a marker."""
    stripped = text.rstrip()
    return text[: max(len(stripped), len(text) - SPACE)]


def joined(parts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return `parts` with texts that follow each other as one, and without empty ones."""
    whole: list[tuple[str, ...]] = []
    for part in parts:
        if part[0] == "text" and whole and whole[-1][0] == "text":
            whole[-1] = ("text", whole[-1][1] + part[1])
        elif part != ("text", ""):
            whole.append(part)
    return whole
