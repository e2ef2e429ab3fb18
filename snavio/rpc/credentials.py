"""Certificate files that are read again when a renewal has replaced them, for servers and channels.

Never serves a certificate with another's key, and never goes on without a CA to verify the other end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from snavio.errors import StateError
from snavio.pki import CA_FILE, CERTIFICATE_FILE, PRIVATE_KEY_FILE, serial_of

Stamp = tuple[tuple[int, int, int], ...]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """Certificate, key and CA that belong together, as PEM."""

    certificate: bytes
    private_key: bytes = field(repr=False)
    ca: bytes
    serial: str


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The certificate files of a process. A renewal replaces the files atomically."""

    certificate: Path
    private_key: Path
    ca: Path

    @classmethod
    def in_folder(cls, folder: str | Path) -> CertificateFiles:
        """The files as `write_certificate_folder` names them."""
        folder = Path(folder)
        return cls(folder / CERTIFICATE_FILE, folder / PRIVATE_KEY_FILE, folder / CA_FILE)

    def stamp(self) -> Stamp:
        """Differs from an earlier stamp if any of the files was replaced; does not read them."""
        try:
            found = [path.stat() for path in (self.certificate, self.private_key, self.ca)]
        except OSError as error:
            raise _unusable(self, f"{error.filename} cannot be found") from None
        return tuple((entry.st_mtime_ns, entry.st_size, entry.st_ino) for entry in found)

    def read(self) -> CertificateBundle:
        """The three files; StateError unless they can be used together."""
        try:
            certificate = self.certificate.read_bytes()
            private_key = self.private_key.read_bytes()
            ca = self.ca.read_bytes()
        except OSError as error:
            raise _unusable(self, f"{error.filename} cannot be read") from None
        try:
            leaf = x509.load_pem_x509_certificate(certificate)
            key = load_pem_private_key(private_key, password=None)
            x509.load_pem_x509_certificates(ca)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise _unusable(self, "one of the files is not valid PEM") from None
        # gRPC would take the pair and fail every handshake with it.
        if leaf.public_key() != key.public_key():
            raise _unusable(self, "certificate and key do not belong together")
        return CertificateBundle(certificate, private_key, ca, serial_of(leaf))


class CertificateWatch:
    """The newest usable bundle of some files. Safe to use from several threads."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._lock = Lock()
        self._refused: Stamp | None = None
        # Stamped before reading: a replacement in between is then noticed the next time, not missed.
        self._stamp = files.stamp()
        self.bundle = files.read()

    def renewed(self) -> CertificateBundle | None:
        """The bundle, if it has changed since the last call; None if it has not or is not usable yet."""
        with self._lock:
            try:
                stamp = self._files.stamp()
                if stamp == self._stamp:
                    return None
                bundle = self._files.read()
            except StateError as error:
                self._complain(error)
                return None
            self._stamp, self._refused = stamp, None
            if bundle == self.bundle:
                return None
            self.bundle = bundle
            return bundle

    def _complain(self, error: StateError) -> None:
        # Once per state of the files: this runs in every handshake, and the next one may find them whole.
        try:
            stamp = self._files.stamp()
        except StateError:
            stamp = ()
        if stamp != self._refused:
            self._refused = stamp
            _log.warning("renewed certificate not usable, keeping the old one", error=str(error))


def server_credentials(files: CertificateFiles) -> Any:
    """Credentials of a server that requires a certificate from every client and verifies it against the CA.

    Every handshake checks the files, so a renewed certificate or a changed CA applies to the next connection without a
    restart. Open connections stay open; the certificate gate checks those.
    """

    def configuration(bundle: CertificateBundle) -> Any:
        return grpc.ssl_server_certificate_configuration(
            [(bundle.private_key, bundle.certificate)], root_certificates=bundle.ca
        )

    return _following(files, configuration, client_certificate=True)


def enrolment_credentials(files: CertificateFiles) -> Any:
    """Credentials of a server for clients without a certificate; renewals are followed as above.

    The CA is sent along with the leaf: such a client knows only its fingerprint and needs the certificate itself.
    """

    def configuration(bundle: CertificateBundle) -> Any:
        chain = bundle.certificate.rstrip() + b"\n" + bundle.ca
        return grpc.ssl_server_certificate_configuration([(bundle.private_key, chain)])

    return _following(files, configuration, client_certificate=False)


def channel_credentials(bundle: CertificateBundle) -> Any:
    """Credentials of a channel that presents its own certificate and trusts the CA alone."""
    return grpc.ssl_channel_credentials(
        root_certificates=bundle.ca, private_key=bundle.private_key, certificate_chain=bundle.certificate
    )


def _following(
    files: CertificateFiles, configuration: Callable[[CertificateBundle], Any], *, client_certificate: bool
) -> Any:
    watch = CertificateWatch(files)

    def renewed() -> Any:
        bundle = watch.renewed()
        return None if bundle is None else configuration(bundle)

    return grpc.dynamic_ssl_server_credentials(
        configuration(watch.bundle), renewed, require_client_authentication=client_certificate
    )


def _unusable(files: CertificateFiles, why: str) -> StateError:
    return StateError(
        f"The certificate files beside {files.certificate} cannot be used: {why}.", reason="bad-certificate"
    )
