"""The certificate that a command acts under, and the topics that belong to its tenant.

Never takes the tenant from what was typed: it stands in the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from snavio.domain.identity import Identity, IdentityKind, valid_name
from snavio.errors import BadRequest, NotAllowed, SnavioError, StateError, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from snavio.config import MeshSettings
    from snavio.launch.installation import Installation
    from snavio.sdk.context import Context

PROBES: Final = 4
ASSUME_S: Final = 10.0
_CERTIFICATE: Final = frozenset({"certificate-revoked", "certificate-expired"})


@dataclass(frozen=True, slots=True)
class Actor:
    """An identity with its certificate folder."""

    identity: Identity
    certificates: Path
    not_after_unix_ns: int
    not_before_unix_ns: int = 0
    principal: Path | None = None
    """Folder of the principal's certificate through which the service's own is had; None where it is there."""

    @property
    def label(self) -> str:
        """Such as acme/billing, principal ci of acme, operator admin."""
        match self.identity.kind:
            case IdentityKind.SERVICE:
                return self.identity.source
            case IdentityKind.PRINCIPAL:
                return f"principal {self.identity.name} of {self.identity.tenant}"
            case kind:
                return f"{kind.value} {self.identity.name}"

    def topic(self, target: str) -> str:
        """The mailbox topic of a target that this tenant owns; of a topic, as `snavio queue` names them, itself."""
        tenant = self.identity.tenant
        own = target.removeprefix(f"{tenant}/")
        if "/" in own and not own.startswith("own/"):
            raise BadRequest(
                f"{target!r} is no target of {tenant}, whose certificate this is: `--as` names another.",
                reason="not-your-target",
            )
        return f"{tenant}/{own}"

    def require_living(self, now_unix_ns: int) -> None:
        """Unauthenticated when the certificate has ended, or when this machine's clock says that it has not begun."""
        from snavio.cli.output import ago
        from snavio.cli.render import time_text

        if self.not_after_unix_ns <= now_unix_ns:
            past = ago((now_unix_ns - self.not_after_unix_ns) / 1e9)
            raise Unauthenticated(
                f"The certificate of {self.label} in {self.certificates} ended {past} ago, by this machine's clock. "
                f"{self.way_back()}",
                reason="certificate-expired",
            )
        if now_unix_ns < self.not_before_unix_ns:
            ahead = ago((self.not_before_unix_ns - now_unix_ns) / 1e9)
            raise Unauthenticated(
                f"This machine's clock is behind: it says {time_text(now_unix_ns)}, and the certificate of "
                f"{self.label} begins {ahead} later. Set the clock right.",
                reason="clock-behind",
            )

    def require_right(self, method: str) -> None:
        """NotAllowed where the table does not admit this identity: asked all the same, services look dead."""
        from snavio.rpc.authorisation import authorise, whose

        if not authorise(method, self.identity):
            raise NotAllowed(
                f"{self.label[0].upper()}{self.label[1:]} may not see what the services do: that is for "
                f"{whose(method)}. `snavio whoami` tells what you may do, `--state-dir` names a mesh of yours.",
                reason="not-for-you",
            )

    def way_back(self) -> str:
        """The next command for somebody whose certificate is good no more."""
        match self.identity.kind:
            case IdentityKind.PRINCIPAL:
                return (
                    f"An operator's `snavio tenant invite {self.identity.tenant} --principal "
                    f"{self.identity.name}` prints an invitation for `snavio join`."
                )
            case IdentityKind.SERVICE:
                return (
                    f"A principal that its registration names gets another with `snavio certs assume "
                    f"{self.identity.name}`; `snavio up` renews those of the demo tenant while it runs."
                )
            case _:
                return "`snavio up` makes another on the machine of the state folder."

    def refused(self, error: Unauthenticated) -> Unauthenticated:
        """The same refusal with who was refused, and what to do; unchanged where it is not about the certificate."""
        if error.reason not in _CERTIFICATE:
            return error
        done = "was revoked" if error.reason == "certificate-revoked" else "has ended, by the mesh's clock"
        barred = (
            f" If all of it was, an operator's `snavio certs restore {self.identity.spiffe_id}` comes first."
            if error.reason == "certificate-revoked"
            else ""
        )
        return Unauthenticated(
            f"The mesh refused {self.label}: its certificate {done}. {self.way_back()}{barred}",
            reason=error.reason,
        )


def act_as(name: str | None, installation: Installation, *, default: str, now_unix_ns: int) -> Actor:
    """The service that `name` means; a sentence when there is none, or when its certificate has ended.

    Without a name: `default` of the demo tenant, or the service of the context.
    """
    if installation.context is not None:
        actor = _in_context(name, installation, installation.context)
    else:
        folder = find_folder(name or default, installation.mesh)
        if folder is None:
            if name is None and not installation.has_run:
                raise installation.no_mesh()
            raise no_certificate(name or default, installation.mesh)
        actor = read_actor(folder, trust_domain=installation.mesh.trust_domain)
    if actor.identity.kind is not IdentityKind.SERVICE:
        raise BadRequest(
            f"{actor.certificates} is the certificate of {actor.identity}, which is not a service."
        )
    if actor.principal is None:
        actor.require_living(now_unix_ns)
    else:
        # Told here, because the call for a service's certificate would only fail as a handshake.
        read_actor(actor.principal, trust_domain=installation.mesh.trust_domain).require_living(now_unix_ns)
    return actor


def _in_context(name: str | None, installation: Installation, context: Context) -> Actor:
    own = read_actor(context.identity, trust_domain=installation.mesh.trust_domain)
    if name is None:
        if own.identity.kind is not IdentityKind.SERVICE:
            raise BadRequest(
                f"The context {context.name} is that of {own.label}, and commands are sent and received by "
                "services: name one that it may act as with --as, such as --as billing.",
                reason="no-service",
            )
        return own
    tenant, _, service = name.rpartition("/")
    folder = find_folder(name, installation.mesh, tenant=own.identity.tenant)
    through = own.identity.kind is IdentityKind.PRINCIPAL and tenant in ("", own.identity.tenant)
    if through and valid_name(service) and folder in (None, context.service_folder(service)):
        identity = Identity(own.identity.trust_domain, IdentityKind.SERVICE, service, own.identity.tenant)
        return Actor(identity, context.service_folder(service), 0, principal=context.identity)
    if folder is None:
        raise no_certificate(name, installation.mesh)
    return read_actor(folder, trust_domain=installation.mesh.trust_domain)


async def have_certificate(who: Actor, mesh: MeshSettings, *, refused: Unauthenticated | None = None) -> None:
    """Get the certificate of a service that is had through a principal, or another if it ends soon or was refused."""
    if who.principal is None:
        return
    from snavio.clock import SystemClock
    from snavio.sdk.certificate import ServiceCertificate

    principal = read_actor(who.principal, trust_domain=mesh.trust_domain)
    try:
        certificate = ServiceCertificate(
            who.certificates,
            signer=mesh.signer,
            clock=SystemClock(),
            trust_domain=mesh.trust_domain,
            source=who.identity.source,
            principal=who.principal,
        )
        await certificate.obtain(within_s=ASSUME_S)
        await certificate.replaced(refused)
    except Unauthenticated as error:
        raise principal.refused(error) from None
    except NotAllowed as error:
        raise NotAllowed(
            f"{principal.label[0].upper()}{principal.label[1:]} may not act as {who.label}: {error}",
            reason=error.reason,
        ) from None


async def ready_for(service: str, mesh: MeshSettings, who: Actor) -> None:
    """Have a certificate that `service` accepts, and know that it serves; raises at once what stands in the way."""
    await have_certificate(who, mesh)
    try:
        await require_serving(service, mesh, who)
    except Unauthenticated as error:
        if who.principal is None or error.reason not in _CERTIFICATE:
            raise
        # The one that was there was revoked; its principal may have another, or is told why not.
        await have_certificate(who, mesh, refused=error)
        await require_serving(service, mesh, who)


async def require_serving(service: str, mesh: MeshSettings, who: Actor) -> None:
    """Raises at once when `service` is away or refuses; the SDK would try again for longer than a person watches."""
    from snavio.launch.probes import Probes

    trouble: SnavioError | None = None
    async with Probes(mesh, certificates=who.certificates, services=(service,)) as probes:
        # A machine that is busy may need longer than one short deadline; one that refuses says so at once.
        for _ in range(PROBES):
            try:
                if await probes.health(service):
                    return
            except Unauthenticated as error:
                raise who.refused(error) from None
            except Unavailable as error:
                trouble = error
    if trouble is not None and trouble.reason != Unavailable.reason:
        raise trouble
    raise Unavailable(f"{service.capitalize()} does not answer at {getattr(mesh, service)}.")


def read_actor(folder: Path, *, trust_domain: str) -> Actor:
    """The identity of the certificate in a folder; StateError when there is none."""
    from cryptography import x509

    from snavio.domain.identity import parse_identity
    from snavio.pki import CERTIFICATE_FILE, not_after_unix_ns

    try:
        leaf = x509.load_pem_x509_certificate((folder / CERTIFICATE_FILE).read_bytes())
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (spiffe_id,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (OSError, ValueError, x509.ExtensionNotFound):
        raise StateError(f"{folder} holds no certificate of ours.") from None
    begin = round(leaf.not_valid_before_utc.timestamp()) * 1_000_000_000
    return Actor(parse_identity(spiffe_id, trust_domain=trust_domain), folder, not_after_unix_ns(leaf), begin)


def find_folder(name: str, mesh: MeshSettings, *, tenant: str = "") -> Path | None:
    """The certificate folder that `--as` means, the same in every command: a folder, or a name.

    Names are looked for in the state folder or the context's, then where `snavio enroll` writes; a name without a
    tenant may also be one of `tenant`, or of the demo tenant.
    """
    from snavio.launch.demo_tenant import folder_name

    plain = name.replace("/", "-")
    named = [mesh.certificates(plain), Path("certs") / plain]
    named += [mesh.certificates(f"{tenant}-{plain}")] if tenant else [mesh.certificates(folder_name(name))]
    candidates = (*named, Path(name)) if not name.startswith((".", "/")) else (Path(name),)
    return next((folder for folder in candidates if _has_certificate(folder)), None)


def _has_certificate(folder: Path) -> bool:
    try:
        return (folder / "cert.pem").is_file()
    except OSError:
        # A name of 10,000 letters is no file's.
        return False


def no_certificate(name: str, mesh: MeshSettings) -> BadRequest:
    """The error for an unknown `--as`, with the names that there are."""
    places = (mesh.certificates("x").parent, Path("certs"))
    found = sorted({path.parent.name for place in places for path in place.glob("*-*/cert.pem")})
    tenants = [folder for folder in found if not folder.startswith(("operator-", "job-"))]
    have = f"there are {', '.join(tenants)}" if tenants else "none were made yet; `snavio up` makes two"
    return BadRequest(
        f"No certificate folder for {name[:80]!r} in {places[0]} or ./certs: {have}. A principal gets one with "
        "`snavio join`, and those of its services with `snavio certs assume`: see docs/certificates.md.",
        reason="no-certificate",
    )
