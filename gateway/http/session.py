"""Which calls belong together, and whose they are, by ids that agents send anyway; docs/http.md says who sends what.

Claude Code's `metadata.user_id` is JSON with `device_id` and `session_id`; in earlier versions it was
`user_HASH_account_UUID_session_UUID`, and proxies pass it on in other fields. Every start of the program is a session:
if it were part of the user's name, each start would be a client of its own.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from fairlead.errors import InvalidRequest
from gateway.core.session_tree import Session
from serving.names import MAX_NAME

MAX_USER_ID = 1024  # characters: several times what Claude Code sends


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


class Sender(NamedTuple):
    """Who sends a request: the user that its body names, empty if it names none, and the session of an agent."""

    user: str
    session: Session | None


class UserId(NamedTuple):
    """The user and the session that an id names; each is empty where the id does not say."""

    user: str = ""
    session: str = ""


def parse_user_id(text: Any, field: str) -> UserId:
    """Return what `text` names; a value that is no text names nothing.

    Raise InvalidRequest, which names `field`, for a text that is too long. It is not looked at.
    """
    if not isinstance(text, str):
        return UserId()
    if len(text) > MAX_USER_ID:
        raise InvalidRequest(f"at most {MAX_USER_ID} characters, got {len(text)}", field)
    user, _, session = text.rpartition("_session_")
    if user.startswith("user_") and "_account_" in user and session:
        return UserId(user, session)
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return UserId(text)
    if not (isinstance(fields, dict) and isinstance(fields.get("session_id"), str)):
        return UserId(text)
    device = fields.get("device_id")
    return UserId(device if isinstance(device, str) else "", fields["session_id"])


def named_by(metadata: Any, user: str | None = None, safety_identifier: str | None = None) -> UserId:
    """Return the first user and the first session that the fields of a body name; raise as `parse_user_id`."""
    first = UserId()
    for field, text in _user_fields(metadata, user, safety_identifier).items():
        named = parse_user_id(text, field)
        first = UserId(first.user or named.user, first.session or named.session)
    return first


def user_names(metadata: Any, user: str | None = None, safety_identifier: str | None = None) -> dict[str, str]:
    """Return the field that names the user, by the name that the typed request has for it; empty if none does."""
    fields = _user_fields(metadata, user, safety_identifier)
    return {"metadata.x-fairlead-user": next(iter(fields))} if fields else {}


def _user_fields(metadata: Any, user: str | None, safety_identifier: str | None) -> dict[str, Any]:
    """Return the fields that may name a user, with their values, in the order in which they count."""
    in_metadata = metadata.get("user_id") if isinstance(metadata, dict) else None
    fields = {"user": user, "safety_identifier": safety_identifier, "metadata.user_id": in_metadata}
    return {field: value for field, value in fields.items() if value}
