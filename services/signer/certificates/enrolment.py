"""Trades one-time tokens for first certificates: of principals, and of instances that join the mesh.

Never gives two certificates for one token, whatever fails in between: the token is gone, durably, before the
certificate is made. Never says why a token is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest

import structlog

from services.signer.certificates.issuing import CertificateIssuer, CertificateRequest, Issued
from snavio.clock import Clock
from snavio.domain.directory.rules import require_name
from snavio.domain.enrolment import (
    DEFAULT_TTL_S,
    MAX_TTL_S,
    SECRET_BYTES,
    Enrolment,
    Enrolments,
    Token,
    parse_token,
)
from snavio.domain.identity import MESH_SERVICES, Identity, IdentityKind, parse_identity
from snavio.errors import BadRequest, Conflict, NotAllowed
from snavio.pki import public_key_of_csr, require_csr_names
from snavio.ports.keystore import KeyStore


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A newcomer with its first certificate."""

    identity: Identity
    issued: Issued


class TokenEnrolment:
    """Makes tokens and redeems them. `start` before use."""

    def __init__(
        self,
        *,
        store: KeyStore,
        certificates: CertificateIssuer,
        clock: Clock,
        trust_domain: str,
        ca_fingerprint: bytes,
        ttl_s: Callable[[IdentityKind], int],
    ) -> None:
        self._store = store
        self._certificates = certificates
        self._clock = clock
        self._trust_domain = trust_domain
        self._fingerprint = ca_fingerprint
        self._ttl_s = ttl_s
        self._ahead_ns = 0
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Load the latest time that was seen: a clock that was set back revives no token."""
        latest = (await self._store.enrolments()).latest_ns
        self._ahead_ns = max(0, latest - self._clock.unix_ns())
        await self.forget_expired()

    async def create(self, *, tenant: str, principal: str, ttl_s: int, actor: str) -> tuple[str, int]:
        """A token's text, which is kept nowhere, and when it ends; `actor` is a SPIFFE id."""
        parse_identity(actor, trust_domain=self._trust_domain)
        require_name(tenant, "tenant")
        if principal:
            require_name(principal, "principal")
        token, expires = await self._keep(
            lambda digest, expires: Enrolment(digest, tenant, principal, expires, actor), ttl_s
        )
        self._log.info(
            "enrolment token made", tenant=tenant, principal=principal, actor=actor, expires_ns=expires
        )
        return token, expires

    async def create_joining(self, *, service: str, ttl_s: int, actor: str) -> tuple[str, int]:
        """A token for one new instance of a mesh service, and when it ends."""
        if service not in MESH_SERVICES or service == "signer":
            raise BadRequest(
                f"{service!r} does not join with a token: name one of "
                f"{', '.join(sorted(set(MESH_SERVICES) - {'signer'}))}.",
                reason="bad-field",
            )
        token, expires = await self._keep(
            lambda digest, expires: Enrolment(digest, "", "", expires, actor, service), ttl_s
        )
        self._log.info("join token made", service=service, actor=actor, expires_ns=expires)
        return token, expires

    async def _keep(self, make: Callable[[bytes, int], Enrolment], ttl_s: int) -> tuple[str, int]:
        if ttl_s > MAX_TTL_S:
            raise BadRequest(f"ttl_seconds: must be at most {MAX_TTL_S}.", reason="bad-field")
        token = Token(self._fingerprint, secrets.token_bytes(SECRET_BYTES))
        now = self._now()
        expires = now + (ttl_s or DEFAULT_TTL_S) * 1_000_000_000
        enrolment = make(token.digest, expires)
        await self._store.update_enrolments(lambda before: before.added(enrolment, now_ns=now))
        return token.text, expires

    async def enroll(self, *, token_text: str, csr_pem: str, name: str) -> Enrolled:
        """A newcomer's certificate; what is refused leaves the token as it was."""
        token = parse_token(token_text)
        enrolment = await self._look_up(token)
        # From here on whoever asks holds a good token, and may be told what is wrong with the rest.
        identity = self._identity(enrolment, name)
        public_key = public_key_of_csr(csr_pem)
        require_csr_names(csr_pem, identity)
        await self._certificates.require_not_barred(identity)
        await self._require_free(identity, enrolment)
        # Before the token is taken: a thief who keeps his tenant at its rate must not cost the others their tokens.
        self._certificates.require_rate(identity)
        await self._take(token)
        issued = await self._certificates.certify(
            CertificateRequest(
                public_key, identity, self._ttl_s(identity.kind), f"token of {enrolment.actor}"
            ),
            # Once more, while nobody else is certified: two open tokens may have asked for one name at once.
            require=lambda: self._require_free(identity, enrolment),
            rated=True,
        )
        self._log.info("enrolled", identity=str(identity), serial=issued.serial)
        return Enrolled(identity, issued)

    async def forget_expired(self) -> None:
        """Forget tokens that have ended, durably; what is gone cannot come back with a clock that is set back."""
        now = self._now()
        await self._store.update_enrolments(lambda enrolments: enrolments.at(now))

    async def _look_up(self, token: Token) -> Enrolment:
        # Reads memory only: a stranger with bad tokens buys no write and no signature check.
        kept = await self._store.enrolments()
        current = kept.at(self._now())
        if current is not kept:
            await self.forget_expired()
        found = current.find(token.digest)
        if found is None or not compare_digest(token.fingerprint, self._fingerprint):
            raise _refused()
        return found

    async def _take(self, token: Token) -> None:
        now = self._now()
        taken = False

        def take(enrolments: Enrolments) -> Enrolments:
            nonlocal taken
            current = enrolments.at(now)
            taken = current.find(token.digest) is not None
            return current.without(token.digest, now_ns=now) if taken else current

        await self._store.update_enrolments(take)
        if not taken:
            raise _refused()

    def _identity(self, enrolment: Enrolment, name: str) -> Identity:
        if enrolment.service:
            if name not in ("", enrolment.service):
                raise NotAllowed(f"This token is for {enrolment.service}.", reason="wrong-name")
            return Identity(self._trust_domain, IdentityKind.MESH, enrolment.service)
        if enrolment.principal and name not in ("", enrolment.principal):
            raise NotAllowed(f"This token is for the principal {enrolment.principal}.", reason="wrong-name")
        chosen = enrolment.principal or name
        require_name(chosen, "name")
        return Identity(self._trust_domain, IdentityKind.PRINCIPAL, chosen, enrolment.tenant)

    async def _require_free(self, identity: Identity, enrolment: Enrolment) -> None:
        # Otherwise whoever holds any token of a tenant could become each of its principals; also those whose
        # certificate has ended, for their rights have not.
        chosen = not enrolment.principal and not enrolment.service
        if chosen and await self._certificates.ever_known(identity):
            raise Conflict(
                f"There is or was a principal {identity.name}; choose another name, or ask an operator for a token "
                "made for this one.",
                reason="name-taken",
            )

    def _now(self) -> int:
        return self._clock.unix_ns() + self._ahead_ns


def _refused() -> NotAllowed:
    return NotAllowed(
        "This token is not good, or not any more; ask an operator for another.", reason="enrolment-refused"
    )
