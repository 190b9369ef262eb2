"""Where a picker's endpoints come from."""

from typing import Protocol

from serving.endpoint_names import Changed


class EndpointSource(Protocol):
    """Endpoints as ip:port, which come and go."""

    @property
    def endpoints(self) -> list[str]:
        """Return the endpoints that are known now."""

    @property
    def is_known(self) -> bool:
        """Return whether the endpoints were learned, even if there are none."""

    @property
    def is_current(self) -> bool:
        """Return whether changes become known; while they do not, the endpoints stay as they were."""

    async def follow(self, changed: Changed) -> None:
        """Keep the endpoints current until cancelled; call `changed` with all of them when they become known, and after
        each change."""
