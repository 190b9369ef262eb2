"""What the requests of all OpenAI's APIs have in common."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.core.session_tree import Session
from gateway.http.sampling import Sampling
from gateway.http.session import UserId, named_by, session_of, user_names


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
    def named_user(self) -> str:
        """See ParsedRequest."""
        return self._named.user

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

    def session(self, headers: Mapping[str, str]) -> Session | None:
        """See ParsedRequest."""
        key = self.prompt_cache_key
        return session_of(headers, self._named.session or (key if isinstance(key, str) else ""))

    @property
    def names(self) -> Mapping[str, str]:
        """See ParsedRequest."""
        return user_names(self.metadata, self.user, self.safety_identifier)

    @property
    def _named(self) -> UserId:
        return named_by(self.metadata, self.user, self.safety_identifier)
