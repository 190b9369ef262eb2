"""The decoder of outputs whose tokens are bytes."""

import codecs


class ByteDecoder:
    """An incremental decoder of UTF-8 for byte tokens."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """See Decoder."""
        return self._decoder.decode(bytes([token])) if token < 256 else ""

    def flush(self) -> str:
        """See Decoder."""
        return ""

    def token_bytes(self, token: int) -> bytes:
        """See Decoder."""
        return bytes([token]) if token < 256 else b""
