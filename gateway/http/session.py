"""Find which calls belong together by the session that agents name anyway; docs/http.md says who sends what."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

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
    SessionHeader("x-llm-d-inference-fairness-id"),
)
_LEGACY_SESSION = "_session_"  # in `metadata.user_id`: user_HASH_account_UUID_session_UUID


def session_of(headers: Mapping[str, str], named: str) -> Session | None:
    """Return the session that the headers name, else `named`, which the body names; None where nothing does.

    An id that cannot be shown in a log counts as none: headers of these names may mean something else to others.
    """
    for header in HEADERS:
        if name := _usable(headers.get(header.name, "")):
            return Session(name, _usable(headers.get(header.parent, "")))
    name = _usable(named)
    return Session(name) if name else None


def session_in(metadata: Any, prompt_cache_key: Any = None) -> str:
    """Return the session that fields of a body name; empty where they name none. They may hold anything."""
    if session := _parts_of(metadata)[1]:
        return session
    return prompt_cache_key if isinstance(prompt_cache_key, str) else ""


def user_in(metadata: Any) -> str:
    """Return the user that `metadata.user_id` names, without the session that Claude Code puts there, too."""
    return _parts_of(metadata)[0]


def _parts_of(metadata: Any) -> tuple[str, str]:
    """Return the user and the session in `metadata.user_id`, each empty where it is not said."""
    user_id = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user_id, str):
        return "", ""
    try:
        fields = msgspec.json.decode(user_id)
    except (msgspec.DecodeError, RecursionError):
        user, _, session = user_id.partition(_LEGACY_SESSION)
        return user, session
    if not isinstance(fields, dict):
        return user_id, ""
    device, name = fields.get("device_id"), fields.get("session_id")
    return (device if isinstance(device, str) else ""), (name if isinstance(name, str) else "")


def _usable(name: str) -> str:
    """Return `name` if it can stand in a log and in the header of the answer, otherwise nothing."""
    name = name.strip()
    return name if len(name) <= MAX_NAME and name.isascii() and name.isprintable() and ";" not in name else ""
