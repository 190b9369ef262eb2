"""Signed interaction tokens, by which every gateway recognizes an interaction that another gateway opened.

A token holds the time when the interaction opened and the number of its calls that were admitted. The signature
(HMAC-SHA256 with the cluster secret) also covers client, app and id, which are in the request.
"""

import hmac
import struct
from typing import NamedTuple

_CLAIM = struct.Struct(">QI")  # opening time in Unix microseconds, stage
MICROS = 1_000_000


class InteractionKey(NamedTuple):
    """The identity of an interaction: its client, its app, and its id for this client and app."""

    client: str
    app: str
    id: str


class TokenClaim(NamedTuple):
    """The content of a token without its signature."""

    opened: float  # Unix seconds, to the microsecond
    stage: int  # stage of the next call


def to_microsecond(seconds: float) -> float:
    """Return `seconds` rounded to a microsecond, the precision of a claim."""
    return round(seconds * MICROS) / MICROS


class TokenSigner:
    """Makes tokens with `secret`, and verifies those of `secret` and of `accepted_secret`, unless that is empty.

    Raises ValueError when `secret` is empty.
    """

    def __init__(self, secret: str, accepted_secret: str = "") -> None:
        if not secret:
            raise ValueError("the cluster secret must not be empty: it signs interaction tokens")
        # Derived, so that a signature is never valid for another use of the secret; a copy costs half of a new one.
        self._keyed = [
            hmac.new(hmac.digest(each.encode(), b"fairlead interaction token", "sha256"), digestmod="sha256")
            for each in (secret, accepted_secret)
            if each
        ]
        # A call's token is looked at several times while the call is decided.
        self._latest: tuple[InteractionKey, bytes, TokenClaim | None] = InteractionKey("", "", ""), b"", None

    def sign(self, key: InteractionKey, claim: TokenClaim) -> bytes:
        """Return the token for the interaction's next call, with the opening time to the microsecond."""
        packed = _CLAIM.pack(round(claim.opened * MICROS), claim.stage)
        return packed + _mac(self._keyed[0], key, packed)

    def verify(self, key: InteractionKey, token: bytes) -> TokenClaim | None:
        """Return the claim of `token`, or None if its signature is not valid for this interaction."""
        latest_key, latest_token, claim = self._latest
        if token != latest_token or key != latest_key:
            claim = self._verified(key, token)
            self._latest = key, token, claim
        return claim

    def _verified(self, key: InteractionKey, token: bytes) -> TokenClaim | None:
        packed, mac = token[: _CLAIM.size], token[_CLAIM.size :]
        if len(packed) < _CLAIM.size:
            return None
        for keyed in self._keyed:
            if hmac.compare_digest(mac, _mac(keyed, key, packed)):
                opened, stage = _CLAIM.unpack(packed)
                return TokenClaim(opened / MICROS, stage)
        return None


def _mac(keyed: hmac.HMAC, key: InteractionKey, packed: bytes) -> bytes:
    for part in key:
        encoded = part.encode()
        packed += len(encoded).to_bytes(4, "big") + encoded  # the length makes the encoding of a key unique
    mac = keyed.copy()
    mac.update(packed)
    return mac.digest()
