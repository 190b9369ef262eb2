"""The ids by which bodies name users. Claude Code puts its session into them, and proxies pass them on in other fields.

Claude Code's `metadata.user_id` is JSON with `device_id` and `session_id`; in earlier versions it was
`user_HASH_account_UUID_session_UUID`. Every start of the program is a session: if it were part of the user's name, each
start would be a client of its own.
"""

from typing import Any, NamedTuple

import msgspec

from fairlead.errors import InvalidRequest

MAX_USER_ID = 1024  # characters: several times what Claude Code sends


class UserId(NamedTuple):
    """The user and the session that an id names; each is empty where the id does not say."""

    user: str = ""
    session: str = ""


def parse(text: Any, field: str) -> UserId:
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
    """Return the first user and the first session that the fields of a body name; raise InvalidRequest as `parse`."""
    in_metadata = metadata.get("user_id") if isinstance(metadata, dict) else None
    fields = {"user": user, "safety_identifier": safety_identifier, "metadata.user_id": in_metadata}
    ids = [parse(text, field) for field, text in fields.items() if text]
    users, sessions = (each.user for each in ids if each.user), (each.session for each in ids if each.session)
    return UserId(next(users, ""), next(sessions, ""))
