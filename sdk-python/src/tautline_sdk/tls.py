"""TLS with files that are read again when they change."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from dataclasses import dataclass

import grpc

_log = logging.getLogger("tautline_sdk")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of a server."""

    cert: str
    """The server's certificate."""
    key: str
    """The certificate's key."""
    client_ca: str = ""
    """The CA that clients must have a certificate of; empty: clients need none."""


class TlsFiles:
    """The credentials of the files."""

    def __init__(self, files: Tls) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen = self._modified()
        self._first = self._load()

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._first,
            self._changed,  # type: ignore[arg-type] # None is allowed
            require_client_authentication=bool(self._files.client_ca),
        )

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called for each connection; None leaves the credentials as they are."""
        with self._lock:
            try:
                modified = self._modified()
                if modified == self._seen:
                    return None
                config = self._load()
            except (OSError, ValueError) as error:
                # The files may be half written: the next connection tries again.
                _log.warning("TLS files do not load; the previous ones stay in use: %s", error)
                return None
            self._seen = modified
            return config

    def _modified(self) -> list[int]:
        files = self._files
        return [os.stat(path).st_mtime_ns for path in (files.cert, files.key, files.client_ca) if path]

    def _load(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        try:
            # gRPC accepts a key of another certificate, and then every connection fails.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(files.cert, files.key)
            if files.client_ca:
                context.load_verify_locations(files.client_ca)
        except ssl.SSLError as error:
            names = ", ".join(path for path in (files.cert, files.key, files.client_ca) if path)
            raise ValueError(f"{names}: not a certificate, its key and a CA in PEM: {error}") from error
        return grpc.ssl_server_certificate_configuration(
            [(_read(files.key), _read(files.cert))],
            root_certificates=_read(files.client_ca) if files.client_ca else None,
        )


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
