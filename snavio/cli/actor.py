"""The certificate that a command acts under, and the topics that belong to its tenant.

Never takes the tenant from what was typed: it stands in the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snavio.config import MeshSettings
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, StateError

PROBES: Final = 4


@dataclass(frozen=True, slots=True)
class Actor:
    """A service with its certificate folder."""

    identity: Identity
    certificates: Path
    not_after_unix_ns: int

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


def act_as(name: str, mesh: MeshSettings, *, now_unix_ns: int) -> Actor:
    """The service that `name` means; a sentence when there is none, or when its certificate has ended."""
    folder = _folder(name, mesh)
    actor = read_actor(folder, trust_domain=mesh.trust_domain)
    if actor.identity.kind is not IdentityKind.SERVICE:
        raise BadRequest(f"{folder} is the certificate of {actor.identity}, which is not a service.")
    if actor.not_after_unix_ns <= now_unix_ns:
        raise StateError(
            f"The certificate in {folder} has ended: `snavio up` renews those of the demo tenant while it runs."
        )
    return actor


async def require_serving(service: str, mesh: MeshSettings, who: Actor) -> None:
    """Unavailable at once when `service` is away; the SDK would try again for longer than a person watches."""
    from snavio.errors import Unavailable
    from snavio.launch.probes import Probes

    async with Probes(mesh, certificates=who.certificates, services=(service,)) as probes:
        # A machine that is busy may need longer than one short deadline; one that refuses says so at once.
        for _ in range(PROBES):
            if await probes.serving(service):
                return
    raise Unavailable(f"{service.capitalize()} does not answer at {getattr(mesh, service)}.")


def read_actor(folder: Path, *, trust_domain: str) -> Actor:
    """The service or principal of the certificate in a folder; StateError when there is none."""
    from cryptography import x509

    from snavio.domain.identity import parse_identity
    from snavio.pki import CERTIFICATE_FILE, not_after_unix_ns

    try:
        leaf = x509.load_pem_x509_certificate((folder / CERTIFICATE_FILE).read_bytes())
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (spiffe_id,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (OSError, ValueError, x509.ExtensionNotFound):
        raise StateError(f"{folder} holds no certificate of ours.") from None
    return Actor(parse_identity(spiffe_id, trust_domain=trust_domain), folder, not_after_unix_ns(leaf))


def find_folder(name: str, mesh: MeshSettings) -> Path | None:
    """The certificate folder that `--as` means, the same in every command: a folder, or a name.

    Names are looked for in the state folder, then where `snavio enroll` writes; a name without a tenant may also be one
    of the demo tenant's.
    """
    from snavio.launch.demo_tenant import folder_name

    plain = name.replace("/", "-")
    named = (mesh.certificates(plain), Path("certs") / plain, mesh.certificates(folder_name(name)))
    candidates = (*named, Path(name)) if not name.startswith((".", "/")) else (Path(name),)
    return next((folder for folder in candidates if (folder / "cert.pem").is_file()), None)


def no_certificate(name: str, mesh: MeshSettings) -> BadRequest:
    """The error for an unknown `--as`, with the names that there are."""
    places = (mesh.certificates("x").parent, Path("certs"))
    found = sorted({path.parent.name for place in places for path in place.glob("*-*/cert.pem")})
    tenants = [folder for folder in found if not folder.startswith(("operator-", "job-"))]
    have = f"there are {', '.join(tenants)}" if tenants else "none were made yet; `snavio up` makes two"
    return BadRequest(
        f"No certificate folder for {name!r} in {places[0]} or ./certs: {have}. Another tenant's principal gets one "
        "with `snavio enroll`, and the SDK gets those of its services: see docs/certificates.md.",
        reason="no-certificate",
    )


def _folder(name: str, mesh: MeshSettings) -> Path:
    if (found := find_folder(name, mesh)) is not None:
        return found
    raise no_certificate(name, mesh)
