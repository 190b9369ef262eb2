"""TLS for a public listener, from PEM files that may be replaced while the process runs."""

import logging
import ssl
from pathlib import Path

import grpc

from serving.config import ConfigError

log = logging.getLogger(__name__)


class Certificate:
    """A certificate chain and its key; raises ConfigError unless both files can be read and belong together."""

    def __init__(self, chain: str, key: str) -> None:
        self._chain, self._key = Path(chain), Path(key)
        self._loaded = self._stamp()
        self._initial = self._load()
        self._served = self._loaded  # stamp of the files that `context` serves
        self._renewal: ssl.SSLContext | None = None
        self._complaint = ""  # the latest one about new files

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a gRPC server; a new connection uses the current content of the files."""
        return grpc.dynamic_ssl_server_credentials(self._initial, self._renewed)

    def context(self) -> ssl.SSLContext:
        """Return a context for a server other than gRPC; a new connection uses the current content of the files."""
        context = self._context()
        context.sni_callback = self._renew  # called at every handshake
        return context

    def _renew(self, connection: ssl.SSLObject, _name: str | None, initial: ssl.SSLContext) -> None:
        try:
            stamp = self._stamp()
            if stamp != self._served:
                self._renewal = self._context()
                self._served = stamp
                self._renewed_at_last()
        except ConfigError as error:
            self._complain(error)
        connection.context = self._renewal or initial

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._chain, self._key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"tls: {self._chain} and {self._key} are no certificate and its key: {error}") from error
        return context

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the new configuration; None if the files have not changed or cannot be used.

        gRPC calls it at every handshake.
        """
        try:
            stamp = self._stamp()
            if stamp == self._loaded:
                return None
            configuration = self._load()
            if self._stamp() != stamp:  # the two files that were read may not belong together
                raise ConfigError(f"tls: {self._chain} and {self._key} are being replaced")
        except ConfigError as error:
            self._complain(error)
            return None
        self._loaded = stamp
        self._renewed_at_last()
        return configuration

    def _renewed_at_last(self) -> None:
        self._complaint = ""
        log.info("certificate renewed", extra={"file": str(self._chain)})

    def _complain(self, error: ConfigError) -> None:
        """Log why new files cannot be used, once and not at every handshake, of which anybody makes as many as he
        likes."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.error("the new certificate cannot be used, the old one stays: %s", error)

    def _stamp(self) -> tuple[int, int]:
        try:
            return self._chain.stat().st_mtime_ns, self._key.stat().st_mtime_ns
        except OSError as error:
            raise ConfigError(f"tls: {error}") from error

    def _load(self) -> grpc.ServerCertificateConfiguration:
        self._context()
        try:
            return grpc.ssl_server_certificate_configuration([(self._key.read_bytes(), self._chain.read_bytes())])
        except OSError as error:
            raise ConfigError(f"tls: {error}") from error
