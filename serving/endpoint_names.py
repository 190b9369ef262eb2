"""Endpoints that an option names: addresses, and hosts that are looked up again and again."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

log = logging.getLogger(__name__)
LOOK_UP_SECONDS = 2.0
Changed = Callable[[list[str]], Awaitable[None]]  # is given all endpoints
Resolve = Callable[[str], Awaitable[Sequence[str]]]


async def resolve(host: str) -> list[str]:
    """Return the IP addresses of `host`, sorted; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})


class EndpointNames:
    """The addresses behind `names`, each host:port. On Kubernetes the host of a headless Service is its ready pods."""

    def __init__(self, names: Sequence[str], resolve: Resolve = resolve) -> None:
        self._names = [(host.strip("[]"), port) for host, _, port in (name.rpartition(":") for name in names)]
        self._resolve = resolve
        self._known: dict[str, Sequence[str]] = {host: [host] for host, _ in self._names if _is_address(host)}
        self._failing: set[str] = set()

    @property
    def endpoints(self) -> list[str]:
        """The endpoints that are known, as ip:port, in the order of the names."""
        found = [(address, port) for host, port in self._names for address in self._known.get(host, ())]
        written = (f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address, port in found)
        return list(dict.fromkeys(written))

    async def look_up(self) -> None:
        """Look up every host; one whose lookup fails keeps the addresses that it had."""
        for host in dict.fromkeys(host for host, _ in self._names if not _is_address(host)):
            try:
                self._known[host] = await self._resolve(host)
                self._failing.discard(host)
            except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
                if host not in self._failing:
                    log.warning("a host of endpoints is not found", extra={"host": host, "error": str(error)})
                self._failing.add(host)

    @property
    def is_known(self) -> bool:
        """Return whether the endpoints were learned, even if there are none."""
        return bool(self.endpoints) or all(host in self._known for host, _ in self._names)

    @property
    def is_current(self) -> bool:
        """Return whether the last lookup of every host succeeded."""
        return not self._failing

    async def follow(self, changed: Changed) -> None:
        """Look up every host, at once and again and again, until cancelled; call `changed` after each change."""
        while True:
            told = self.endpoints, self.is_known
            await self.look_up()
            if (self.endpoints, self.is_known) != told:
                await changed(self.endpoints)
            await asyncio.sleep(LOOK_UP_SECONDS)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
