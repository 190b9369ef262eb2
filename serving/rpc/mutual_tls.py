"""Mutual TLS between services: both ends show a certificate of the cluster's own authority.

Pods come and go with their addresses, so certificates do not name them: all name MEMBER, and who holds one is a member.
What a member may do the cluster secret still decides.
"""

from pathlib import Path

import grpc

from serving.config import ConfigError

MEMBER = "fairlead.internal"  # a DNS name in every internal certificate


class MutualTls:
    """A service's certificate and key, and the authority that all others' are checked against."""

    def __init__(self, certificate: str, key: str, authority: str) -> None:
        """From PEM files; raises ConfigError."""
        try:
            self._certificate, self._key = Path(certificate).read_bytes(), Path(key).read_bytes()
            self._authority = Path(authority).read_bytes()
        except OSError as error:
            raise ConfigError(f"internal TLS: {error}") from error

    def server(self) -> grpc.ServerCredentials:
        """Refuses whoever shows no certificate of the authority."""
        pair = (self._key, self._certificate)
        return grpc.ssl_server_credentials([pair], root_certificates=self._authority, require_client_auth=True)

    def channel(self) -> grpc.ChannelCredentials:
        """Refuses a server that is no member."""
        return grpc.ssl_channel_credentials(self._authority, self._key, self._certificate)


def load_mutual_tls(certificate: str, key: str, authority: str) -> MutualTls | None:
    """As configured: all three files, or none; raises ConfigError."""
    given = [bool(file) for file in (certificate, key, authority)]
    if any(given) and not all(given):
        raise ConfigError("internal_certificate, internal_key, internal_authority: give all of them, or none")
    return MutualTls(certificate, key, authority) if all(given) else None
