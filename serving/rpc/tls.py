"""TLS for a public listener, from PEM files that may be replaced while it runs."""

import logging
import ssl
from pathlib import Path

import grpc

from serving.config import ConfigError

log = logging.getLogger(__name__)


class Certificate:
    """A certificate chain and its key. Raises ConfigError unless they can be read and belong together."""

    def __init__(self, chain: str, key: str) -> None:
        self._chain, self._key = Path(chain), Path(key)
        self._loaded = self._stamp()
        self._initial = self._load()

    def credentials(self) -> grpc.ServerCredentials:
        """For a gRPC server; new connections get what the files hold by then."""
        return grpc.dynamic_ssl_server_credentials(self._initial, self._renewed)

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called at every handshake: None while nothing has changed, or what has changed is no use."""
        try:
            stamp = self._stamp()
            if stamp == self._loaded:
                return None
            configuration = self._load()
        except ConfigError as error:
            log.error("the new certificate cannot be used, the old one stays: %s", error)
            return None
        self._loaded = stamp
        log.info("certificate renewed", extra={"file": str(self._chain)})
        return configuration

    def _stamp(self) -> tuple[int, int]:
        try:
            return self._chain.stat().st_mtime_ns, self._key.stat().st_mtime_ns
        except OSError as error:
            raise ConfigError(f"tls: {error}") from error

    def _load(self) -> grpc.ServerCertificateConfiguration:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._chain, self._key)
            return grpc.ssl_server_certificate_configuration([(self._key.read_bytes(), self._chain.read_bytes())])
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"tls: {self._chain} and {self._key} are no certificate and its key: {error}") from error
