"""Digests by which a request is known to continue a chat that was answered before.

A program that names no session and calls no tools repeats the conversation: what it has asked, the answer, and what
follows. So the messages up to the last answer are those of an earlier request. Answers that stand in a prompt as
examples were never asked for by themselves, and make no request another one's successor. System messages do not
count, since some programs write the time into them.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

ASSISTANT, SYSTEM = "assistant", "system"
DIGEST_BYTES = 16


class Turn(NamedTuple):
    """A message of a chat."""

    role: str
    text: str


class ChatDigests(NamedTuple):
    """Digests of parts of a chat, in hexadecimal digits."""

    asked: str  # what is to be answered; the beginning of the answer, if the request has one, does not count
    answered: str  # what the last answer in the history has answered; empty if there is no answer
    through: str  # the history up to the end of that answer; empty if there is none


def chat_digests(turns: Iterable[Turn], key: bytes) -> ChatDigests:
    """Return the digests of a chat, in time linear in its length. Answers in a row count as one.

    Without `key`, of at most 64 bytes, nobody can find out by a digest what was asked.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, key=key)
    asked, answered, through = digest.hexdigest(), "", ""
    is_answer = False
    for role, text in turns:
        if role == SYSTEM:
            continue
        if is_answer and role != ASSISTANT:
            answered, through = asked, digest.hexdigest()
        is_answer = role == ASSISTANT
        digest.update(f"{role} {len(text)} {text}".encode())
        if not is_answer:
            asked = digest.hexdigest()
    return ChatDigests(asked, answered, through)
