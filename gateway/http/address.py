"""The address that a connection comes from, by which connections are counted."""

import ipaddress

PREFIX_BITS = 64  # of an IPv6 address: what one host has is at least a network of this size


def address_of(client: tuple[str, int] | None) -> str:
    """Return the address of `client`, of IPv6 the network; empty for a connection without one."""
    if client is None:
        return ""
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), PREFIX_BITS), strict=False))
