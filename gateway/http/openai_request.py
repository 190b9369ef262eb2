"""What the requests of all OpenAI's APIs have in common."""

from typing import Any

from gateway.http.sampling import Sampling
from gateway.http.session import session_in


class OpenAIRequest(Sampling, kw_only=True):
    """Say which model is asked, for whom, and in what form; absent and null mean the API's default.

    Unknown fields are ignored.
    """

    model: str = ""
    stream: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Any = None
    prompt_cache_key: Any = None

    @property
    def named_user(self) -> str:
        """See Asked."""
        return self.user or self.safety_identifier or ""

    @property
    def named_session(self) -> str:
        """See Asked."""
        return session_in(self.metadata, self.prompt_cache_key)

    @property
    def is_streamed(self) -> bool:
        """See Asked."""
        return bool(self.stream)
