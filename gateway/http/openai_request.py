"""What the requests of all OpenAI's APIs have in common."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.http.sampling import Sampling
from gateway.http.session import Sender, named_by, session_of, user_names


class OpenAIRequest(Sampling, kw_only=True):
    """The fields that all of OpenAI's bodies have: the model, the user and whether the answer is streamed.

    Absent fields and null mean the API's default. Unknown fields are ignored.
    """

    model: str | None = None
    stream: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Any = None
    prompt_cache_key: Any = None
    service_tier: Any = None

    @property
    def named_tier(self) -> str:
        """See ParsedRequest."""
        return self.service_tier if isinstance(self.service_tier, str) else ""

    @property
    def stored_bytes(self) -> int:
        """See ParsedRequest."""
        return 0

    @property
    def is_streamed(self) -> bool:
        """See ParsedRequest."""
        return bool(self.stream)

    @property
    def counts_tokens(self) -> bool:
        """See ParsedRequest."""
        return False

    @property
    def body_type(self) -> type[msgspec.Struct]:
        """See ParsedRequest."""
        return type(self)

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """See ParsedRequest."""
        named = named_by(self.metadata, self.user, self.safety_identifier)
        key = self.prompt_cache_key
        return Sender(named.user, session_of(headers, named.session or (key if isinstance(key, str) else "")))

    @property
    def names(self) -> Mapping[str, str]:
        """See ParsedRequest."""
        return user_names(self.metadata, self.user, self.safety_identifier)
