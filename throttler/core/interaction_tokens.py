"""Signed interaction tokens: an interaction that one gateway opened is known to every gateway by its token.

A token carries when the interaction opened and how many of its calls were admitted, signed (HMAC-SHA256 with the
cluster secret) together with client, app and id, which travel in the request.
"""

import hashlib
import hmac
import struct
from typing import NamedTuple

_CLAIM = struct.Struct(">QI")  # opened in Unix microseconds, stage
MICROS = 1_000_000


class InteractionKey(NamedTuple):
    """What an interaction belongs to, and its name there."""

    client: str
    app: str
    id: str


class TokenClaim(NamedTuple):
    """What a token says."""

    opened: float  # Unix seconds, to the microsecond
    stage: int  # of the next call


def to_microsecond(seconds: float) -> float:
    """Return `seconds` as a claim can say it: to the microsecond."""
    return round(seconds * MICROS) / MICROS


class TokenSigner:
    """Makes and verifies tokens with one secret; raises ValueError when it is empty."""

    def __init__(self, secret: str) -> None:
        if not secret:
            raise ValueError("the cluster secret must not be empty: it signs interaction tokens")
        # Derived, so that a signature is never valid for another use of the secret.
        self._secret = hmac.digest(secret.encode(), b"fairlead interaction token", "sha256")

    def sign(self, key: InteractionKey, claim: TokenClaim) -> bytes:
        """The token for the interaction's next call."""
        packed = _CLAIM.pack(round(claim.opened * MICROS), claim.stage)
        return packed + self._mac(key, packed)

    def verify(self, key: InteractionKey, token: bytes) -> TokenClaim | None:
        """What `token` claims, or None when it was not signed here for this interaction."""
        packed, mac = token[: _CLAIM.size], token[_CLAIM.size :]
        if len(packed) < _CLAIM.size or not hmac.compare_digest(mac, self._mac(key, packed)):
            return None
        opened, stage = _CLAIM.unpack(packed)
        return TokenClaim(opened / MICROS, stage)

    def _mac(self, key: InteractionKey, packed: bytes) -> bytes:
        mac = hmac.new(self._secret, packed, hashlib.sha256)
        for part in key:
            data = part.encode()
            mac.update(len(data).to_bytes(4, "big") + data)  # lengths, so that no two keys read the same
        return mac.digest()
