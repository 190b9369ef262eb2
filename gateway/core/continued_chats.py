"""How a later request is known to continue a chat: by the digest of what it repeats, or by the ids of its tool calls.

A program that names no session and calls no tools repeats the conversation: what it has asked, the answer, and what
follows. So the messages up to the last answer are those of an earlier request. Answers that stand in a prompt as
examples were never asked for by themselves, and make no request another one's successor. System messages do not
count, since some programs write the time into them.

Most agents name no session, but each of their requests repeats the conversation with the ids of its tool calls, which
the gateway made. An id therefore carries the interaction in which the call was made, and a signature (HMAC-SHA256 with
the cluster secret) that also covers the client. Nothing is remembered: all gateways of a cluster know each other's ids.

An id has nine letters and digits, since Mistral's templates accept no other length: 53 bits, of which the signature has
12. One guess of 4096 is thus taken for an id of ours. It gains nothing: it names an interaction of the same client, as
the header of a session may without any guess, and an interaction that is not in progress opens like every other.
"""

import hashlib
import hmac
import re
import string
from collections.abc import Iterable
from itertools import islice
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


DIGITS = string.digits + string.ascii_letters
LENGTH = 9
ID = re.compile(rf"[0-9a-zA-Z]{{{LENGTH}}}")
NAME = re.compile(r"chat-([0-9a-f]{5})")
ROOT_BITS, PLACE_BITS, CALL_BITS, MAC_BITS = 17, 12, 12, 12
LOOKED_AT = 16  # ids of one request, the newest ones: all of an agent's are ours, unless it has changed the provider


class ToolCallIds:
    """Makes ids with `secret`, and knows those of `secret` and of `accepted_secret`, unless that is empty."""

    def __init__(self, secret: str, accepted_secret: str = "") -> None:
        # Derived, so that a signature is never valid for another use of the secret.
        self._keys = [
            hmac.digest(each.encode(), b"fairlead tool call id", "sha256") for each in (secret, accepted_secret) if each
        ]

    def begun_by(self, origin: str) -> str:
        """Return the name of the interaction that begins with `origin`, such as a request's id."""
        return _name(_bits(origin, ROOT_BITS))

    def continued_by(self, client: str, newest_first: Iterable[str]) -> str:
        """Return the name of the interaction that a request continues, by the first id made for `client`; else nothing.

        O(LOOKED_AT): further ids are not looked at.
        """
        for made in islice(newest_first, LOOKED_AT):
            number = _number(made)
            if number is not None and any(self._mac(key, client, number) == number % 2**MAC_BITS for key in self._keys):
                return _name(number >> PLACE_BITS + CALL_BITS + MAC_BITS)
        return ""

    def make(self, client: str, interaction: str, request_id: str, place: int) -> str:
        """Return the id of tool call number `place` of a conversation, which the call `request_id` has generated.

        `place` makes ids of a conversation different, `request_id` those of calls that go on from the same place.
        """
        named = NAME.fullmatch(interaction)
        root = int(named[1], 16) if named else _bits(interaction or request_id, ROOT_BITS)
        unsigned = (
            (root << PLACE_BITS | place % 2**PLACE_BITS) << CALL_BITS | _bits(request_id, CALL_BITS)
        ) << MAC_BITS
        return _text(unsigned | self._mac(self._keys[0], client, unsigned))

    def _mac(self, key: bytes, client: str, number: int) -> int:
        signed = (number >> MAC_BITS).to_bytes(8, "big") + client.encode()
        return _end(hmac.digest(key, signed, "sha256"), MAC_BITS)


def _name(root: int) -> str:
    return f"chat-{root:05x}"


def _bits(text: str, bits: int) -> int:
    return _end(hashlib.sha256(text.encode()).digest(), bits)


def _end(digest: bytes, bits: int) -> int:
    return int.from_bytes(digest, "big") & (1 << bits) - 1


def _text(number: int) -> str:
    digits = ""
    for _ in range(LENGTH):
        number, digit = divmod(number, len(DIGITS))
        digits = DIGITS[digit] + digits
    return digits


def _number(text: str) -> int | None:
    """Return the number that `_text` has written, or None if `text` is nothing that it writes."""
    if not ID.fullmatch(text):
        return None
    number = 0
    for character in text:
        number = number * len(DIGITS) + DIGITS.index(character)
    return number if number < 2 ** (ROOT_BITS + PLACE_BITS + CALL_BITS + MAC_BITS) else None
