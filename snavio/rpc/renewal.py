"""Renews the certificate in a folder: a new key and a new certificate after two thirds of its lifetime.

Servers and channels follow the files by themselves. Never replaces a certificate by one for another identity or another
key, never leaves a half-written folder, and jitter only makes it earlier.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from snavio.clock import Clock
from snavio.errors import IntegrityError, SnavioError, StateError
from snavio.host.periodic import Periodic
from snavio.pki import (
    BACKDATE_S,
    CERTIFICATE_FILE,
    make_key_and_csr,
    not_after_unix_ns,
    serial_of,
    write_certificate_folder,
)
from snavio.rpc.channel import MeshChannel
from snavio.v1.signer_pb2 import IssueCertificateRequest, IssueCertificateResponse

# Shares of the whole lifetime: when to begin, and how much earlier at most, so that a thousand processes that were
# started together do not renew together.
DUE: Final = 2 / 3
JITTER: Final = 1 / 10
CALL_SECONDS: Final = 5.0
LONGEST_SLEEP_S: Final = 60.0
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate for the key of a request."""

    certificate_pem: bytes
    ca_pem: bytes


# Given a request, a certificate.
Certify = Callable[[bytes], Awaitable[Certified]]


@dataclass(frozen=True, slots=True)
class Leaf:
    """The certificate in a folder."""

    spiffe_id: str
    serial: str
    issued_ns: int
    not_after_ns: int

    @classmethod
    def in_folder(cls, folder: Path) -> Leaf:
        """Read it; StateError when there is no readable one."""
        path = folder / CERTIFICATE_FILE
        try:
            return cls.of(x509.load_pem_x509_certificate(path.read_bytes()))
        except (OSError, ValueError):
            raise StateError(f"{path} cannot be read.", reason="bad-certificate") from None

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Leaf:
        """The leaf of a certificate; ValueError unless it has exactly one identity."""
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            raise ValueError("no names") from None
        (spiffe_id,) = names.get_values_for_type(x509.UniformResourceIdentifier)
        begin = round(certificate.not_valid_before_utc.timestamp()) * 1_000_000_000
        end = not_after_unix_ns(certificate)
        # Certificates are backdated a little; that part of the lifetime is not counted.
        issued = min(begin + BACKDATE_S * 1_000_000_000, end)
        return cls(spiffe_id, serial_of(certificate), issued, end)

    def due_ns(self, share: float = DUE) -> int:
        """The time at which that share of its lifetime is over."""
        return self.issued_ns + round((self.not_after_ns - self.issued_ns) * share)


@dataclass(slots=True)
class _Failures:
    count: int = 0
    reason: str = field(default="")


class Renewal:
    """Renews one folder's certificate, from `start` to `stop`. `gauges` is for Introspection."""

    def __init__(
        self, folder: Path, certify: Certify, *, clock: Clock, jitter: random.Random | None = None
    ) -> None:
        self._folder = folder
        self._certify = certify
        self._clock = clock
        self._jitter = jitter or random.Random()  # noqa: S311 spreads load, hides nothing
        self._share = DUE - JITTER * self._jitter.random()
        self._failures = _Failures()
        self._not_after_ns = self._lifetime_ns = 0
        self._pause_s = 0.0
        self._looks = Periodic(
            "renew certificate", self._look, every_s=lambda: self._pause_s, first_s=FIRST_PAUSE_S, jitter=0.0
        )
        self._log = structlog.get_logger().bind(certificates=str(folder))

    def start(self) -> None:
        """Begin in the background."""
        self._looks.start(at_once=True)

    async def stop(self) -> None:
        """Stop; a write that has begun is finished."""
        await self._looks.stop()

    def gauges(self) -> dict[str, float]:
        """Seconds until the certificate ends, negative when it has, and those of its whole life."""
        if not self._not_after_ns:
            with contextlib.suppress(StateError):
                self._took(Leaf.in_folder(self._folder))
        if not self._not_after_ns:
            return {}
        return {
            "expires_in_s": (self._not_after_ns - self._clock.unix_ns()) / 1e9,
            "lifetime_s": self._lifetime_ns / 1e9,
        }

    def _took(self, leaf: Leaf) -> None:
        self._not_after_ns, self._lifetime_ns = leaf.not_after_ns, leaf.not_after_ns - leaf.issued_ns

    async def renew_if_due(self) -> bool:
        """Renew if it is due; true if that was done. Passes errors on."""
        leaf = await asyncio.to_thread(Leaf.in_folder, self._folder)
        self._took(leaf)
        # Read anew each time: another process that shares the folder may have renewed it.
        if self._clock.unix_ns() < leaf.due_ns(self._share):
            return False
        await self._renew(leaf)
        return True

    async def _renew(self, before: Leaf) -> None:
        after = await replace_certificate(self._folder, self._certify, spiffe_id=before.spiffe_id)
        self._share = DUE - JITTER * self._jitter.random()
        self._took(after)
        self._log.info(
            "certificate renewed",
            identity=after.spiffe_id,
            serial=after.serial,
            previous=before.serial,
            not_after_ns=after.not_after_ns,
        )

    async def _look(self) -> None:
        # After a fault of the program the back-off alone decides: a disk that is full for a moment must not be the end
        # of the certificate an hour later.
        self._pause_s = 0.0
        try:
            await self.renew_if_due()
            self._failures = _Failures()
            self._pause_s = self._until_due_s()
        except SnavioError as error:
            # The cause is elsewhere and has a log line of its own: no reason to restart this process.
            self._pause_s = self._complain(error)

    def _until_due_s(self) -> float:
        try:
            due = Leaf.in_folder(self._folder).due_ns(self._share)
        except StateError:
            return FIRST_PAUSE_S
        return min(LONGEST_SLEEP_S, max(0.05, (due - self._clock.unix_ns()) / 1e9))

    def _complain(self, error: SnavioError) -> float:
        """Log a failure, once per reason and then ever more rarely; the seconds to wait."""
        self._failures.count += 1
        if self._failures.reason != error.reason or self._failures.count & (self._failures.count - 1) == 0:
            self._failures.reason = error.reason
            left_s = (self._not_after_ns - self._clock.unix_ns()) / 1e9
            self._log.warning(
                "certificate not renewed",
                reason=error.reason,
                message=str(error),
                attempts=self._failures.count,
                expires_in_s=round(left_s),
            )
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures.count - 1, 10))
        left_s = (self._not_after_ns - self._clock.unix_ns()) / 1e9
        if left_s > 0:
            # Several attempts still fit into what is left of the life.
            longest = min(longest, max(0.1, left_s / 8))
        return longest * self._jitter.uniform(0.5, 1.0)


async def replace_certificate(folder: Path, certify: Certify, *, spiffe_id: str) -> Leaf:
    """Make a key, have it certified, write both; IntegrityError for a certificate that does not match the request."""
    private_key_pem, csr_pem = make_key_and_csr()
    return await keep_certificate(folder, await certify(csr_pem), private_key_pem, spiffe_id=spiffe_id)


async def keep_certificate(
    folder: Path, certified: Certified, private_key_pem: bytes, *, spiffe_id: str
) -> Leaf:
    """Check that a certificate is for that key and identity, and write the folder."""
    leaf = _checked(certified, private_key_pem, spiffe_id)
    try:
        await asyncio.to_thread(
            write_certificate_folder,
            folder,
            certificate_pem=certified.certificate_pem,
            private_key_pem=private_key_pem,
            ca_pem=certified.ca_pem,
        )
    except OSError as error:
        raise StateError(
            f"{folder} cannot be written: {error.strerror}.", reason="folder-unwritable"
        ) from None
    return leaf


def _checked(certified: Certified, private_key_pem: bytes, spiffe_id: str) -> Leaf:
    try:
        certificate = x509.load_pem_x509_certificate(certified.certificate_pem)
        ca = x509.load_pem_x509_certificate(certified.ca_pem)
        key = serialization.load_pem_private_key(private_key_pem, password=None)
        certificate.verify_directly_issued_by(ca)
        leaf = Leaf.of(certificate)
    except (ValueError, TypeError, InvalidSignature):
        raise IntegrityError(
            "The certificate that came back cannot be used.", reason="bad-certificate"
        ) from None
    if certificate.public_key() != key.public_key() or leaf.spiffe_id != spiffe_id:
        raise IntegrityError("The certificate that came back is not ours.", reason="bad-certificate")
    return leaf


def mesh_renewal(folder: Path, signer: MeshChannel, *, clock: Clock) -> Renewal:
    """Renewal of a mesh service's own certificate by Signer."""

    async def certify(csr_pem: bytes) -> Certified:
        leaf = await asyncio.to_thread(Leaf.in_folder, folder)
        issued = await signer.call(
            "/snavio.v1.Signer/IssueCertificate",
            IssueCertificateRequest(csr_pem=csr_pem.decode(), spiffe_id=leaf.spiffe_id),
            IssueCertificateResponse,
            timeout_s=CALL_SECONDS,
        )
        return Certified(issued.certificate_pem.encode(), issued.ca_pem.encode())

    return Renewal(folder, certify, clock=clock)
