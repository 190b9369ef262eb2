"""Mutual TLS between services: both ends present a certificate of the cluster's own authority.

Addresses of pods change, so certificates do not name them. Every certificate names INTERNAL_NAME, and a process that
holds one is a service of the cluster. Authorization still depends on the cluster secret.
"""

from pathlib import Path

import grpc

from serving.config import ConfigError

INTERNAL_NAME = "fairlead.internal"  # a DNS name in every internal certificate
PARTS = 3  # files: certificate, key and authority


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


def load_mutual_tls(files: str) -> MutualTls | None:
    """Return the credentials in the files that the option `internal_tls` names, None if it is empty.

    Raise ConfigError.
    """
    if not files:
        return None
    paths = [path.strip() for path in files.split(",")]
    if len(paths) != PARTS or not all(paths):
        raise ConfigError(f"internal_tls: expected CERTIFICATE,KEY,AUTHORITY, got {files!r}")
    return MutualTls(*paths)
