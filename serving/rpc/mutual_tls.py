"""Mutual TLS between services: both ends present a certificate of the cluster's own authority.

Addresses of pods change, so certificates do not name them. Every certificate names INTERNAL_NAME, and a process that
holds one is a service of the cluster. Authorization still depends on the cluster secret.
"""

from pathlib import Path

import grpc

from serving.config import ConfigError

INTERNAL_NAME = "fairlead.internal"  # a DNS name in every internal certificate


class MutualTls:
    """A service's certificate and key, and the authority against which other services' certificates are checked."""

    def __init__(self, certificate: str, key: str, authority: str) -> None:
        """Read PEM files; raise ConfigError if one cannot be read."""
        try:
            self._certificate, self._key = Path(certificate).read_bytes(), Path(key).read_bytes()
            self._authority = Path(authority).read_bytes()
        except OSError as error:
            raise ConfigError(f"internal TLS: {error}") from error

    def server(self) -> grpc.ServerCredentials:
        """Return server credentials that refuse a client without a certificate of the authority."""
        pair = (self._key, self._certificate)
        return grpc.ssl_server_credentials([pair], root_certificates=self._authority, require_client_auth=True)

    def channel(self) -> grpc.ChannelCredentials:
        """Return channel credentials that refuse a server without a certificate of the authority."""
        return grpc.ssl_channel_credentials(self._authority, self._key, self._certificate)


def load_mutual_tls(certificate: str, key: str, authority: str) -> MutualTls | None:
    """Return the credentials in the three files, or None if no file is given; raise ConfigError if only some are."""
    given = [bool(file) for file in (certificate, key, authority)]
    if any(given) and not all(given):
        raise ConfigError("internal_certificate, internal_key, internal_authority: give all of them, or none")
    return MutualTls(certificate, key, authority) if all(given) else None


class InternalTlsOptions:
    """The options `internal_...`, which the configurations of several services share."""

    __slots__ = ()
    internal_certificate: str
    internal_key: str
    internal_authority: str

    @property
    def mutual_tls(self) -> MutualTls | None:
        """Return the certificate of this service for mutual TLS, None without; raises ConfigError."""
        return load_mutual_tls(self.internal_certificate, self.internal_key, self.internal_authority)
