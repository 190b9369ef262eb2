"""The ids by which bodies name users. Claude Code puts its session into them, and proxies pass them on in other fields.

Claude Code's `metadata.user_id` is JSON with `device_id` and `session_id`; in earlier versions it was
`user_HASH_account_UUID_session_UUID`. Every start of the program is a session: if it were part of the user's name, each
start would be a client of its own.
"""

import re
from typing import Any, NamedTuple

import msgspec

_WITH_SESSION = re.compile(r"(?P<user>user_.+_account_.*)_session_(?P<session>.+)")


class UserId(NamedTuple):
    """The user and the session that an id names; each is empty where the id does not say."""

    user: str = ""
    session: str = ""


def parse(text: Any) -> UserId:
    """Return what `text` names; a value that is no text names nothing."""
    if not isinstance(text, str):
        return UserId()
    if found := _WITH_SESSION.fullmatch(text):
        return UserId(found["user"], found["session"])
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return UserId(text)
    if not (isinstance(fields, dict) and isinstance(fields.get("session_id"), str)):
        return UserId(text)
    device = fields.get("device_id")
    return UserId(device if isinstance(device, str) else "", fields["session_id"])


def named_by(metadata: Any, *texts: str | None) -> UserId:
    """Return the first user and the first session that `texts` and then `user_id` of `metadata` name."""
    in_metadata = metadata.get("user_id") if isinstance(metadata, dict) else None
    ids = [parse(text) for text in (*texts, in_metadata) if text]
    users, sessions = (each.user for each in ids if each.user), (each.session for each in ids if each.session)
    return UserId(next(users, ""), next(sessions, ""))
