"""All addresses of a host: behind the name of a headless Service are its ready pods."""

import asyncio
import socket


async def resolve(host: str) -> list[str]:
    """Return the IP addresses of `host`, sorted; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})
