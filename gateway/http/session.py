"""Find which calls belong together by the session that agents name anyway; docs/http.md says who sends what."""

from collections.abc import Mapping
from typing import NamedTuple

from gateway.core.session_tree import Session
from serving.names import MAX_NAME


class SessionHeader(NamedTuple):
    """A header with the id of a session, and the header with the id of the session that started it, if there is one."""

    name: str
    parent: str = ""


# The first one that a request has counts.
HEADERS = (
    SessionHeader("x-claude-code-session-id"),
    SessionHeader("session-id"),
    SessionHeader("session_id", "x-codex-parent-thread-id"),
    SessionHeader("x-session-id", "x-parent-session-id"),
    SessionHeader("x-opencode-session", "x-parent-session-id"),
    SessionHeader("x-openwebui-chat-id"),
    SessionHeader("x-llm-d-inference-fairness-id"),
)


def session_of(headers: Mapping[str, str], named: str) -> Session | None:
    """Return the session that the headers name, else `named`, which the body names; None where nothing does.

    An id that cannot be shown in a log counts as none: headers of these names may mean something else to others.
    """
    for header in HEADERS:
        if header.name in headers and (name := _usable(headers[header.name])):
            return Session(name, _usable(headers.get(header.parent, "")))
    name = _usable(named)
    return Session(name) if name else None


def _usable(name: str) -> str:
    """Return `name` if it can stand in a log and in the header of the answer, otherwise nothing."""
    name = name.strip()
    return name if len(name) <= MAX_NAME and name.isascii() and name.isprintable() and ";" not in name else ""
